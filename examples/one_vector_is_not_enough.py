"""Why one vector for a word is not enough: the arithmetic, and the same on real occurrences.

    python examples/one_vector_is_not_enough.py [PICTURE.png]

First a textbook's reckoning with three numbers a vector. Then the vectors that the built-in model
en_mini gives to four words in sentences of two senses each; the picture shows them on two axes.
"""

import sys
from typing import Dict, List, Tuple

import numpy as np

from spacy_elmo.analysis.occurrences import average_cost
from spacy_elmo.analysis.projection import Panel, draw_panels
from spacy_elmo.bilm import BiLM

RIVER = np.array([0.90, 0.05, 0.20])
MONEY = np.array([0.05, 0.90, 0.20])

#: Each word in two senses, the word between asterisks.
SENTENCES: Dict[str, Dict[str, List[str]]] = {
    "bank": {
        "river": [
            "We sat on the *bank* of the river and watched the boats .",
            "The canoe drifted toward the muddy *bank* of the stream .",
            "Willows grow along the north *bank* of the creek .",
            "They camped on the left *bank* of the river that night .",
            "The horses climbed the steep *bank* and left the water .",
            "On the opposite *bank* stood a row of tall trees .",
            "He pulled the fish up the grassy *bank* of the pond .",
            "The flood washed away the eastern *bank* of the river .",
        ],
        "money": [
            "The *bank* raised the interest rate on its loans .",
            "She opened a savings account at the *bank* last week .",
            "The *bank* lends money to small businesses .",
            "A customer can ask the *bank* for a mortgage .",
            "He owes the *bank* more than ten thousand dollars .",
            "The government took over the failing *bank* in 2008 .",
            "Her salary is paid directly into her *bank* account .",
            "The central *bank* controls the supply of money .",
        ],
    },
    "play": {
        "do": [
            "The children *play* in the garden every afternoon .",
            "They *play* football with their friends after school .",
            "I can *play* the piano and the violin .",
            "We used to *play* cards in the evening .",
            "You may *play* with the dog if you like .",
            "Boys and girls *play* together in the street .",
            "He wants to *play* for the national team .",
            "Do you *play* chess or tennis ?",
        ],
        "drama": [
            "The *play* was performed at a theater in London .",
            "She wrote a *play* about her childhood .",
            "The first act of the *play* is set in Venice .",
            "His best *play* won a prize last year .",
            "We saw a new *play* by a young author .",
            "The actors of the *play* bowed to the audience .",
            "Critics praised the *play* for its dialogue .",
            "In this *play* the king loses his mind .",
        ],
    },
    "left": {
        "went": [
            "She *left* the house early in the morning .",
            "The train *left* the station on time .",
            "He *left* his wife and went to Paris .",
            "They *left* the city before the war began .",
            "I *left* my coat in the car .",
            "The guests *left* after dinner .",
            "He *left* the army in 1919 .",
            "We *left* the door open for the cat .",
        ],
        "side": [
            "Turn *left* at the next corner .",
            "He broke his *left* arm in the fall .",
            "The button is on the *left* side of the screen .",
            "She wore a ring on her *left* hand .",
            "The kitchen is on the *left* of the hall .",
            "Pain in the *left* leg may be a sign of it .",
            "Look to the *left* and to the right .",
            "The *left* wing of the building was empty .",
        ],
    },
    "second": {
        "time": [
            "Light travels 300,000 kilometers in one *second* .",
            "Wait a *second* , please .",
            "The sound lasts less than a *second* .",
            "It takes a *second* for the page to load .",
            "He paused for a *second* and looked up .",
            "The wheel turns ten times per *second* .",
            "For one *second* nobody moved .",
            "The signal repeats every *second* .",
        ],
        "order": [
            "The *second* chapter of the book is about birds .",
            "She won the *second* prize in the contest .",
            "Their *second* child was born in May .",
            "He was elected to a *second* term as president .",
            "The *second* reason is the cost of the work .",
            "It is the *second* largest city in the country .",
            "The *second* half of the game was dull .",
            "We live on the *second* floor .",
        ],
    },
}


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of the angle between two vectors."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def mixture(share: float) -> np.ndarray:
    """Average of occurrences of which a share is about rivers, the rest about money."""
    return share * RIVER + (1.0 - share) * MONEY


def arithmetic() -> None:
    """The reckoning: what one vector for two senses is near to."""
    average = mixture(0.5)
    print("Two senses of one word, and their average")
    for name, vector in (("river", RIVER), ("money", MONEY), ("average", average)):
        print(f"  {name:8}", "  ".join(f"{x:.3f}" for x in vector))
    print(f"  cosine of the senses with each other    {cosine(RIVER, MONEY):.4f}")
    print(f"  cosine of the average with the river    {cosine(average, RIVER):.4f}")
    print(f"  cosine of the average with the money    {cosine(average, MONEY):.4f}")
    print("The average stands equally near to both, and is neither.\n")
    print("How the average moves with what the corpus is about")
    print("  share of river   cosine with river   with money")
    for share in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        vector = mixture(share)
        near, far = cosine(vector, RIVER), cosine(vector, MONEY)
        print(f"  {100 * share:12.0f} %   {near:17.4f}   {far:10.4f}")
    print("At 90 % it is nearly the one sense, and the other is all but lost.\n")


def occurrences(bilm: BiLM, word: str) -> Tuple[np.ndarray, List[str]]:
    """Layers of a word's occurrences, (L + 1, n, width), and the sense of each."""
    vectors, senses = [], []
    for sense, sentences in SENTENCES[word].items():
        for sentence in sentences:
            tokens = sentence.split()
            position = tokens.index(f"*{word}*")
            layers = bilm.embed([[token.strip("*") for token in tokens]])[0]
            vectors.append(layers[:, position])
            senses.append(sense)
    return np.stack(vectors, axis=1), senses


def measure(vectors: np.ndarray, senses: List[str]) -> Tuple[float, float, float, float]:
    """Mean cosines within a sense and between senses, share whose nearest neighbour has the same
    sense, and the share of the squared length that the average of all does not hold."""
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = unit @ unit.T
    same = np.array([[a == b for b in senses] for a in senses])
    other = ~np.eye(len(senses), dtype=bool)
    nearest = np.where(other, cosines, -2.0).argmax(axis=1)
    right = float(np.mean([senses[i] == senses[j] for i, j in enumerate(nearest)]))
    within, between = cosines[same & other].mean(), cosines[~same].mean()
    return float(within), float(between), right, average_cost(vectors).lost


def main(picture: str = "one_vector_is_not_enough.png") -> None:
    arithmetic()
    bilm = BiLM.load("en_mini")
    panels = []
    print("The same on real occurrences (en_mini), 8 of each sense")
    print("  word    layer   within sense   between   nearest has same sense   lost by average")
    for word in SENTENCES:
        layers, senses = occurrences(bilm, word)
        for number, vectors in enumerate(layers):
            if number == 0 and float(np.ptp(vectors, axis=0).max()) < 1e-4:
                print(f"  {word:8}{number:5}   one vector for all: the layer of characters")
                continue
            within, between, right, lost = measure(vectors, senses)
            print(
                f"  {word:8}{number:5}   {within:12.3f}   {between:7.3f}   {100 * right:20.0f} %"
                f"   {100 * lost:13.1f} %"
            )
        top = layers[-1]
        panels.append(Panel(word, top, senses, {"average": top.mean(axis=0)}))
    draw_panels(panels, picture, "Occurrences of four words, each in two senses (en_mini, layer 2)")
    print(f"\nPicture: {picture}")


if __name__ == "__main__":
    main(*sys.argv[1:])
