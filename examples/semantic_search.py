"""Search among sentences by the similarity of their vectors.

    python examples/semantic_search.py ["your own question"]

With `hooks = true` spaCy's own `.vector` and `.similarity` come from ELMo, so that code written
for static vectors works as it is. A sentence's vector is the mean of its words' vectors: a
baseline, which goes by form and wording as much as by meaning (see
spacy_elmo.analysis.similarity). Raw cosines are all high; those without the mean of all sentences,
in the second column, are spread out, and the two do not always agree on the best.
"""

import sys

import spacy

import spacy_elmo

SENTENCES = [
    "The storm brought heavy rain and strong wind to the coast.",
    "Snow is expected in the mountains on Friday.",
    "It will be sunny and warm over the weekend.",
    "The bank lowered the interest rate on its loans.",
    "Investors sold their stocks after the company lost money.",
    "The government raised taxes on income and property.",
    "The doctor told her to take the medicine twice a day.",
    "High blood pressure raises the risk of a heart attack.",
    "The patient was treated for an infection of the lungs.",
    "The team won the game in the last minute.",
    "He ran the race in less than two hours.",
    "She scored two goals in the first half of the match.",
    "The cells of plants have a wall that animal cells lack.",
    "Water boils at a lower temperature on a high mountain.",
    "The planet moves around its star in ten days.",
]
QUESTIONS = [
    "Will it be cold and windy tomorrow?",
    "The price of shares fell on the market.",
    "What drug should I take for the pain?",
    "The players lost the final match.",
]


def main(*questions: str) -> None:
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo", config={"hooks": True, "mix": "mean"})
    docs = list(nlp.pipe(SENTENCES))
    mean = spacy_elmo.common_mean(docs)
    for question in nlp.pipe(questions or QUESTIONS):
        print(question.text)
        # What the hooks give, and the same cosines without the common mean.
        raw = [question.similarity(doc) for doc in docs]
        centred = spacy_elmo.similarity_matrix([question], docs, mean=mean)[0]
        for i in centred.argsort()[::-1][:3]:
            print(f"  {raw[i]:.3f}  {centred[i]:+.3f}  {docs[i].text}")
        best = max(range(len(docs)), key=raw.__getitem__)
        print(f"  best by the raw cosine: {docs[best].text}")


if __name__ == "__main__":
    main(*sys.argv[1:])
