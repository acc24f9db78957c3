"""Quick start: contextual vectors in a spaCy pipeline, and the language model behind them.

python examples/quick_start.py
"""

import spacy

import spacy_elmo


def main() -> None:
    # The built-in weights come with the package; nothing is downloaded or trained.
    nlp = spacy.blank("en")
    nlp.add_pipe("elmo")
    doc = nlp("We sat on the bank of the river. Then I went to the bank to get some money.")

    # A vector for every token: the mean of the biLM's three layers, unless told otherwise.
    print("vectors", doc._.elmo.shape, "layers", doc._.elmo_layers.shape)

    # The same word in other sentences has other vectors, but for layer 0, which sees only the
    # characters of the word itself.
    first, second = (token for token in doc if token.text == "bank")
    for layer in range(3):
        cosine = spacy_elmo.similarity(first, second, layer=layer)
        print(f"layer {layer}: cosine of the two banks {cosine:.3f}")

    # The biLM is a language model as well: how likely was each word, read from the left?
    spacy_elmo.score(doc)
    for token in doc[:9]:
        print(f"{token.text:8} {token._.elmo_surprisal:6.2f} bits")

    # Which words would fit in the place of "river", judged by both sides? A power of the words'
    # frequency is divided out, or common words would come first.
    river = next(token for token in doc if token.text == "river")
    found = spacy_elmo.substitutes(river, k=8, prior_power=0.7)
    print("instead of river:", ", ".join(substitute.word for substitute in found))

    # A picture of it, as displaCy makes them.
    with open("surprisal.html", "w", encoding="utf-8") as file:
        file.write(spacy_elmo.render(doc, page=True, jupyter=False))
    print("picture: surprisal.html")


if __name__ == "__main__":
    main()
