"""Aliases for the thinc side."""

from typing import List

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d, Floats3d

#: All layers of each doc, *(L + 1, n_tokens, width)*.
LayersT = List[Floats3d]
VectorsT = List[Floats2d]
EncoderT = Model[List[Doc], LayersT]
MixT = Model[LayersT, VectorsT]
Tok2VecT = Model[List[Doc], VectorsT]
