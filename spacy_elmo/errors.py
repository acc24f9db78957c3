"""Catalogue of coded errors and warnings. Imports nothing of the package.

Every message says what was found, what was expected and what to do. Raise with
``raise ElmoError(Errors.E001.format(found=...))``; the code (``[ELMO-E001]``) is put
in front automatically, so that a user can search for it and a program can filter on it.
``docs/errors.md`` is generated from this file.
"""

from typing import Any


class _Coded(type):
    """Prefix every message of the catalogue with its code."""

    def __getattribute__(cls, name: str) -> Any:
        value = super().__getattribute__(name)
        if len(name) == 4 and name[0] in "EW" and name[1:].isdigit():
            return f"[ELMO-{name}] {value}"
        return value


class ElmoError(ValueError):
    """A problem that the user can mend; the message starts with its code."""

    @property
    def code(self) -> str:
        """The code alone, for example ``"ELMO-E001"`` ("" if there is none)."""
        text = str(self)
        return text[1 : text.index("]")] if text.startswith("[ELMO-") else ""


class ElmoWarning(UserWarning):
    """A warning of this package; the message starts with its code."""


class Warnings(metaclass=_Coded):
    """Messages for :class:`ElmoWarning`."""

    # Weights and file formats: 001-009
    W001 = (
        "{path!s} holds arrays that are no part of a biLM and were left out: {names}. "
        "Nothing needs to be done unless you miss them."
    )
    W002 = (
        "The model has a softmax of {n_words:,} words, which the format {format!r} cannot hold: it "
        "was left out. Keep the source, or convert to 'native', if the softmax is still needed."
    )
    W003 = (
        "{path!s} was left out: {problem}. The vectors do not depend on it; the model cannot be "
        "used for perplexity until it has a softmax."
    )

    # Training data and vocabularies: 010-019
    W050 = "Going on although {problem}; the run is not what it would have been."
    W010 = (
        "{rate:.1f} % of the tokens are not in the vocabulary, which is a lot: all of them share "
        "one output of the softmax and teach little. Use a larger vocabulary, or check that "
        "it was made from text tokenised and cased like this one."
    )
    W011 = (
        "The corpus has more types than the {limit:,} that are counted at a time: {n_pruned:,} "
        "rare ones were dropped on the way, and counts of types seen up to {threshold} times "
        "are too low. Raise max_types if such rare words matter and there is memory."
    )
    W012 = (
        "{rate:.1f} % of the sentences have more than {limit} tokens and were cut into pieces. "
        "Check that the text has one sentence per line, or raise max_sentence_length."
    )

    # Stand-ins for other packages: 090-099
    W090 = (
        "vocab_to_cache is not used: words are encoded once in every batch as it is. Leave the "
        "argument out; the vectors are the same."
    )

    # Training workflows and learned mixes: 120-129
    W120 = (
        "en_mini was trained on English, but the language is {lang!r}. The config is valid, but a "
        "biLM of that language serves it better: --weights PATH (train one with "
        "python -m spacy elmo pretrain)."
    )
    W121 = (
        "The MixLogger finds no scalar mix in the pipeline: its file will hold scores only. Give a "
        "component a listener (spacy-elmo.ElmoListener.v1), or use spacy.ConsoleLogger.v1."
    )

    # Bulk embedding: 130-139
    W130 = (
        "{path!s} will need about {needed}, but only {free} are free there. The run goes on until "
        "the disk is full and can be resumed after space was made; or choose --dtype float16, "
        "one vector a token (--average), or another disk."
    )
    W131 = (
        "The text has {found}, more than the {limit} that can be kept in memory as one map: "
        "sentence_to_index was left out. Look sentences up by their line number."
    )

    # Analysis: 140-159
    W140 = (
        "The doc is in the language {found!r}, but the model was trained on {expected!r}: its "
        "probabilities mean nothing there. Give a model of that language: score(doc, model=...)."
    )
    W141 = (
        "{n:,} of {total:,} occurrences of {word!r} were kept, a random sample: the nearest "
        "neighbours are searched for these. Raise the limit to keep more."
    )

    # Component and layers, more of it: 180-184
    W180 = (
        "The cache file {path!s} cannot be used: {problem}. Outside of training it is not needed: "
        "the memory alone is used, and the vectors are the same. Set the component's cache_path to "
        "null to be rid of this warning."
    )
    W181 = (
        "The cache file {path!s} has reached its limit of {limit:,g} MiB: what it holds is used, "
        "but nothing is added. Raise the component's cache_file_mb (0: no limit), or delete the "
        "file if it holds other data."
    )


class Errors(metaclass=_Coded):
    """Messages for :class:`ElmoError`."""

    # Sentences given to the encoder: 001-009
    E001 = (
        "Expected a list of sentences, each a list of token strings, but item {index} is "
        "{found}. If this is one tokenised sentence, wrap it in a list: embed([tokens]). "
        "If it is untokenised text, split it into tokens first: embed([text.split()])."
    )
    E002 = (
        "Expected every token to be a string, but token {token} of sentence {sentence} is "
        "{found}. Convert the tokens to str first (bytes with .decode())."
    )
    E003 = (
        "Expected a list of sentences, each a list of token strings, but got {found}. "
        "Make it a list: embed(list(sentences))."
    )
    E004 = (
        "The mix has {n_layers} layers, but its initial weights are {found}: {n} values. "
        "Give one value for each layer, the token layer first, or none at all."
    )
    E005 = (
        "A scalar mix with layer norm has parameters as wide as the vectors, but no width was "
        "given. Give the model's: ScalarMix(n_layers, layer_norm=True, width=bilm.width)."
    )
    E006 = (
        "The layers to mix have the shape {found}, but ({n_layers}, ..., {width}) is expected: all "
        "layers of the model that the mix was made for, the token layer first. Give these."
    )

    # Model configuration: 010-019
    E010 = (
        "The model configuration is not valid: {problems}. "
        "Mend these values in the configuration and load it again."
    )

    # Weights and file formats: 020-049
    E020 = (
        "There is no model at {path!r} (looked from {cwd!s}). Give the name of a built-in model "
        "({names}), or the path of a model folder, of a zip, or of an options.json."
    )
    E021 = (
        "{path!s} holds no complete model: {found}. Looked for: {expected}. Give the path of one "
        "of these."
    )
    E022 = (
        "{path!s} holds several files that could be the {what}: {found}. Name the two files that "
        "belong together: the options file as the model and the hdf5 file as its weights."
    )
    E023 = (
        "{path!s} cannot be read as {expected}: {found}. "
        "Fetch or write the file again; it may be truncated or be something else."
    )
    E024 = (
        "The weights in {path!s} do not fit the configuration they came with: {problems}. "
        "Check that configuration and weights belong to the same model and that both are whole."
    )
    E025 = (
        "{path!s} does not describe a model that can be used: {problems}. "
        "Mend these values, or fetch the file again."
    )
    E026 = (
        "{path!s} has no section 'char_cnn' (found: {found}), so the model takes word ids of a "
        "fixed vocabulary. Only models with character input are supported; use one of those."
    )
    E027 = (
        "{path!s} was written in version {found} of the format, but this release of spacy-elmo "
        "reads version {expected}. Upgrade spacy-elmo to read it."
    )
    E028 = (
        "{path!s} is an HDF5 file, and the package h5py, which is needed for these, cannot be "
        "imported ({problem}). Install it: pip install h5py."
    )
    E029 = (
        "The model cannot be written in the format {format!r}, which cannot hold it: {problems}. "
        "Write it in the format 'native', which holds every model."
    )
    E030 = (
        "{path!s} was refused: it is a pickle that asks for more than tensors ({problem}). Nothing "
        "of it was run. Do not load it by other means either unless you trust where it is from."
    )
    E031 = (
        "{path!s} describes a model with {part} {found!r}, which is not supported; {expected} is. "
        "Use another model of that collection."
    )
    E032 = "{path!s}, line {line}: found {found!r}, expected {expected}. Fetch the file again."
    E033 = (
        "The dictionary {path!s} does not fit the model: {problems}. "
        "Check that dictionary and weights belong to the same model."
    )
    E034 = (
        "{path!s} cannot be replaced by a model: {found}. "
        "Name a folder that does not exist yet, is empty, or holds nothing but such a model."
    )
    E035 = "{name} is {found!r}, but one of {expected} is expected. Give one of these."
    E036 = "The model cannot be stored with {name}={found!r}: {problems}. Store it as float32."
    E037 = (
        "{path!s} cannot be read as a zip with a model: {problem}. "
        "Fetch it again, or unpack it and give the folder."
    )
    E038 = (
        "The softmax does not fit its vocabulary: {problems}. "
        "Every row of the softmax needs its word; load and save them together."
    )
    E039 = "{path!s} could not be written: {problem}. Check the path, rights and free space."

    # Language model and training: 050-059
    E050 = (
        "The model has no softmax, so it cannot score text. Expected a model whose folder has "
        "the tensor softmax.weight and a vocabulary.txt, loaded with softmax=True. Models of "
        "other origin have none: train one with `pretrain --init`."
    )
    E051 = "The training configuration is not valid: {problems}. Mend these values and start again."
    E052 = (
        "There is no checkpoint to resume from: {path} does not exist. Start the run without "
        "--resume, or name the output folder of the run that is to go on."
    )
    E053 = (
        "The checkpoint {path} cannot be used: {problem}. Start the run anew, or put a whole "
        "checkpoint of this version there."
    )
    E054 = (
        "{n} steps in a row, up to step {step}, had a loss or gradient that is not finite or far "
        "above the recent mean, and were not taken. Start a new run with a lower "
        "training.learn_rate or training.clip_norm; --init with this run's model-best goes on "
        "from there."
    )

    E055 = (
        "{path} holds the checkpoint of a run already. Give --resume to go on with it, or "
        "choose another output folder."
    )
    E056 = (
        "The settings differ from those of the run that is to go on: {differences}. Leave the "
        "settings out when resuming, or start a new run in another folder."
    )
    E057 = (
        "The training text is not the one that the run began with: {problems}. Restore it, give "
        "--allow-changed-corpus to go on with the text prepared before, or start a new run."
    )

    E058 = (
        "The vocabulary of the softmax lacks {missing}. Expected the entries <S>, </S> and <UNK> "
        "among its words; a softmax of other origin cannot score text here."
    )

    E059 = (
        "There is no sentence to score. Expected at least one sentence with or without tokens; "
        "check that the text is not empty."
    )

    # Training data, prepared corpora and vocabularies: 060-079
    E060 = (
        "No file found for the input {path!s} (looked from {cwd!s}). "
        "Check the path; quote a glob pattern so that it is matched here and not by the shell."
    )
    E061 = (
        "The input {path!s} is a directory, but files are expected. "
        "Name the files in it by a pattern, for example '{path!s}/*.txt'."
    )
    E062 = (
        "The input {path!s} cannot be read as training text: it is {what}. Readable are text "
        "(one tokenised sentence per line), .jsonl, both also as .gz or .xz, and .spacy."
    )
    E063 = "No training input was given. Name at least one file or pattern."
    E064 = (
        "{path!s}, line {line}: not valid UTF-8 at byte {offset} of the line ({byte}). The file is "
        "probably in another encoding such as Latin-1 or UTF-16. Convert it to UTF-8 first, for "
        "example with: iconv -f LATIN1 -t UTF-8."
    )
    E065 = (
        "{path!s}, line {line}: the line contains a NUL character, so the file is probably UTF-16 "
        "or binary data, but UTF-8 text is expected. Convert it, or leave the file out."
    )
    E066 = (
        "{path!s}: the compressed file is truncated or damaged ({reason}). "
        "Fetch or write it again; 'gzip -t' or 'xz -t' checks it."
    )
    E067 = (
        "{path!s}: the file has no token in it, but every input must have at least one sentence. "
        "Leave the file out, or write it again if it should not be empty."
    )
    E068 = (
        '{path!s}, line {line}: {reason}, but a JSON object with the key "text" (a string) or '
        '"tokens" (a list of strings) is expected on every line. Mend or remove the line.'
    )
    E069 = (
        '{path!s}, line {line}: the JSONL has untokenised "text", but nothing was named to '
        "tokenise it. Give a language (--lang en) or an installed pipeline (--model "
        'en_core_web_sm), or put "tokens" in the file.'
    )
    E070 = (
        "The text cannot be tokenised by {name}: {reason}. Give either a language code that spaCy "
        "knows (--lang en) or the name or path of an installed pipeline (--model en_core_web_sm)."
    )
    E071 = (
        "{path!s}: the file cannot be read as a DocBin ({reason}). It is truncated or was not "
        "written by DocBin.to_disk; write it again, for example with 'spacy convert'."
    )
    E072 = (
        "{path!s}, line {line}: the line has {found}, but one tokenised sentence per line is "
        "expected. Split the text into sentences, or give untokenised text as .jsonl with --lang."
    )
    E073 = "{path!s}: the file cannot be read ({reason}). Check that it exists and is readable."
    E074 = (
        "The setting {name} is {found!r}, but {expected} is expected. "
        "Give another value and prepare the corpus again."
    )
    E075 = (
        "{path!s} is not a complete prepared corpus: {problem}. "
        "Prepare the corpus again from its inputs."
    )
    E076 = (
        "The vocabulary file {path!s} cannot be used: {problem}. Expected is UTF-8 text with one "
        "word per line, either all with a tab and a count after the word or all without."
    )
    E077 = (
        "The vocabulary would have no words: {problem}. "
        "Lower min_count, raise max_size, or give more text."
    )
    E078 = (
        "{path!s}, line {line}: the text has {found:,} characters, but the pipeline takes at most "
        "{limit:,}. Split it into several lines, or tokenise with --lang, which has no limit."
    )
    E079 = (
        "{path!s}, lines {lines}: the pipeline failed on one of these texts ({reason}). "
        "Try the texts with the pipeline alone, or tokenise with --lang instead of --model."
    )

    # Runs of the trainer: 080-089
    E080 = (
        "The text is too short to train on as streams: {n:,} predictions in a direction do not "
        "fill one batch of {rows:,} rows of {steps} steps. Lower training.batch_tokens, give "
        "more text, or train on whole sentences (training.unit)."
    )
    E081 = (
        "There is no GPU number {number}: {n_gpus} can be used here. Give --gpu-id -1 for the CPU, "
        "or install a PyTorch that supports the GPU."
    )
    E082 = (
        "The text has only {n} sentences, too few to hold some of them out: every {every}th is "
        "taken to measure perplexity on. Give more text, or name held-out text with --heldout."
    )
    E083 = (
        "The output folder {path!s} cannot be made or written: {problem}. The last path is the "
        "folder of the run; name one that does not exist yet."
    )

    # Stand-ins for other packages: 090-099
    E090 = (
        "Elmo was given {found}. Give either an options_file with its weight_file, or a "
        "spacy_elmo.bilm.BiLM as module and None for both files."
    )
    E091 = (
        "Elmo expects character ids, integers of shape (batch, ..., tokens, characters), but got "
        "{found}. Make them of tokenised sentences with batch_to_ids."
    )
    E092 = (
        "The character ids of sentence {sentence}, token {token} are not valid: {problem}. "
        "Make ids with batch_to_ids, and pad sentences with zeros at the end only."
    )
    E093 = (
        "The model reads every {unit} of a word by a dictionary of its own, but Elmo takes the "
        "byte ids of batch_to_ids. Use the model through spacy_elmo.bilm.BiLM instead."
    )
    E094 = "{name} is {found!r}, but {expected} is expected. Give such a value."

    # Component and layers: 100-119
    E100 = (
        "The doc {text!r} has no sentence boundaries, but doc_sents_segmenter goes by them. Put a "
        "component that sets them (senter, sentencizer, parser) before elmo and, for training, "
        "into [training] annotating_components; or use spacy-elmo.punct_segmenter.v1. For `spacy "
        "elmo embed`: give --model and a pipeline with such a component, or --segmenter punct."
    )
    E101 = (
        "The encoder has no weights and was told of none. Set weights in the component's "
        "settings (a built-in name such as en_mini, or a path), or load a saved pipeline."
    )
    E102 = (
        "The doc has ELMo's vectors for {found} tokens, but {expected} tokens now: it was "
        "retokenised since. Run the component on it again: nlp.get_pipe('elmo')(doc)."
    )
    E103 = (
        "The doc {text!r} has no ELMo vectors. Put it through a pipeline with the component elmo "
        "whose store is 'layers' or 'vectors'."
    )
    E104 = "The setting {name} is {found!r}, expected one of: {allowed}. Change it in the config."
    E105 = (
        "A scalar mix of {expected} layers was given {found}. Its parameters were made for "
        "another biLM; train the task again with this one, or load the biLM it was trained with."
    )
    E106 = (
        "A listener was given {expected} docs by its elmo component but is asked for {found} "
        "other ones. Components that listen must get the same batch as elmo: use nlp.update."
    )
    E107 = (
        "A listener was not fed in training by its component {upstream!r}, and the docs have no "
        "ELMo layers. If {upstream!r} is among [training] frozen_components, add it to "
        "[training] annotating_components as well, or leave it out of both: its own setting "
        "trainable = false freezes the weights already. For nlp.rehearse, which feeds no listener, "
        "put the docs through it first: nlp.get_pipe({upstream!r})(example.predicted). Otherwise "
        "put it before the listener."
    )
    E108 = (
        "A listener found no ELMo layers on the doc {text!r}. The component {upstream!r} that it "
        "listens to is missing, disabled, or stands behind it. Put it into the pipeline before "
        "the listening component; or give that component an encoder of its own with "
        "nlp.replace_listeners and the path of its section ElmoListener.v1, which is "
        "model.tok2vec.embed.elmo in the configs of this package."
    )
    E109 = (
        "A listener was built for a {what} of {found}, but the encoder has {expected}. Leave width "
        "out of the listener's settings, or load the biLM that the task was trained with."
    )
    E110 = "The component elmo has no labels. Add labels to the components that listen to it."
    E111 = (
        "The node {name!r} is no listener, but only listeners can be linked. Use ElmoListener.v1."
    )
    E112 = (
        "A listener of {name!r} has upstream '*', but {upstreams} stand before it and each could "
        "feed it. Name one of them in the listener's setting upstream."
    )
    E113 = (
        "ConcatEmbed.v1 was given output_mix = true without an encoder, but the second mix is "
        "joined to an encoder's output. Give it one under encode, or set output_mix = false."
    )
    E114 = (
        "ConcatEmbed.v1 with output_mix = true mixes the layers of its elmo twice, but was given "
        "the model {name!r} there. Give it ElmoListener.v1 or ElmoTok2Vec.v1 under elmo."
    )
    E115 = (
        "ConcatEmbed.v1 was given include_static_vectors = true, but the vocab has no vectors. "
        "Name a package with some under [initialize] vectors, or set it to false."
    )
    E116 = (
        "doc._.elmo_layers is written by the component elmo and can only be set to None, which "
        "takes ELMo's arrays off the doc. Keep arrays of your own under an extension of your own."
    )
    E117 = (
        "The setting weights is {found!r}, expected the name of a built-in model, a path, or a "
        "list of two paths: the options file and the weights file. Change it in the config."
    )
    E118 = (
        "The cache file {path!s} cannot be used: {problem}. Give another cache_path, in a folder "
        "that exists, or delete the file: it is made again."
    )
    E119 = (
        "{path!s} is a pipeline with several models: {found}. Name the folder of the one that is "
        "meant."
    )

    # Training workflows and learned mixes: 120-129
    E120 = (
        "The file {name} was not found in {source!s} or a folder in it, nor {name}.xz. Fetch it "
        "with python -m spacy project assets, or name a folder that has it: --vars.source FOLDER."
    )
    E121 = (
        "{path!s} is not the file that project.yml names: its MD5 checksum is {found}, expected "
        "{expected}. Delete it and fetch it again with python -m spacy project assets; if you mean "
        "to use another version, change the checksum there."
    )
    E122 = "There is no data set {found!r}; known are: {allowed}. Name one of them: --vars.data."
    E123 = (
        "The command needs trained pipelines or the file of a MixLogger (--history), and not "
        "both. Name one or more pipelines: python -m spacy elmo mix PIPELINE."
    )
    E124 = (
        "No component of the pipeline {name!r} has a trained mix of ELMo's layers (its components: "
        "{found}). Name a pipeline with a component that listens to elmo, after its training."
    )
    E125 = (
        "{path!s} is no history of mixes: {problem}. Expected is the file that "
        "spacy-elmo.MixLogger.v1 writes, a line of JSON for each evaluation."
    )
    E126 = "{path!s} exists already. Give another name, or --force to replace the file."
    E127 = (
        "No config can be made: {problem}. Check --lang and --pipeline against "
        "python -m spacy init config --help."
    )
    E128 = "No figure can be written to {path!s}: {problem}."
    E129 = (
        "The pipeline {name!r} cannot be loaded: {problem}. Name an installed package or the "
        "folder of a trained pipeline, such as output/model-best."
    )

    # Bulk embedding: 130-139
    E130 = (
        "The format of {path!s} is {found!r}, but one of {expected} is expected. Give the output "
        "one of these endings, or name the format with --format."
    )
    E131 = (
        "What to keep of the layers was said {n} times ({found}), but once is expected. Give one "
        "of --all, --top, --average and --mix."
    )
    E132 = (
        "The mix {spec!r} cannot be used: {problem}. Give a weight for each layer, the token layer "
        "first (--mix 0.2,0.5,0.3), or a trained pipeline and, if several of its components have "
        "a mix, the component (--mix PIPELINE:ner)."
    )
    E133 = (
        "The shard is {found!r}, but two numbers i/n with 1 <= i <= n are expected. For the second "
        "of four machines give --shard 2/4."
    )
    E134 = (
        "{path!s} exists already{what}. Name another output, or give --overwrite to replace what "
        "`embed` wrote before."
    )
    E135 = (
        "{path!s} holds the unfinished output of another run: {differences}. Give the input and "
        "options of that run to go on with it, or --overwrite to begin anew."
    )
    E136 = (
        "{path!s} is in use: another process is writing this output. Wait for it, or name another "
        "output."
    )
    E137 = (
        "{path!s} needs the package {package}, which cannot be imported ({problem}). "
        "Install it: pip install spacy-elmo[{extra}]."
    )
    E138 = (
        "{path!s} cannot be used as embeddings: {problem}. Expected is what `spacy elmo embed` or "
        "`allennlp elmo` wrote; check the path, or write the file again."
    )
    E139 = (
        "{path!s} is no complete set of shards: {problem}. Put the shards of one corpus together "
        "that were written with --shard 1/n to n/n and the same options."
    )

    # Analysis: 140-159
    E140 = (
        "There is no word at position {found}: the sentence has {n} words, counted from 0. Give "
        "the position of one of them; to ask what comes next, use next_words."
    )
    E141 = (
        "The component's biLM is kept without its softmax, and the softmax cannot be had from "
        "where the weights came from ({source!r}): {problem}. Name a model that has one: "
        "score(doc, model=...)."
    )
    E142 = (
        "The component's weights are no longer those of {source!r}, where they came from: the "
        "softmax there does not belong to them ({problem}). Name the model to score with: "
        "score(doc, model=...)."
    )
    E143 = (
        "The doc {text!r} has no language-model scores. Put them on it first: "
        "spacy_elmo.score(doc)."
    )
    E144 = "{name} is {found!r}, but {expected} is expected. Give such a value."
    E145 = (
        "The word {word!r} does not occur in the text ({n:,} sentences read). Expected is a token "
        "as the text spells it; try another case (--ignore-case), or more text."
    )
    E146 = "{path!s}, line {line}: found {found}, but {expected} is expected. Mend the line."
    E147 = (
        "{path!s} has no {what}, so there is nothing to evaluate. Check that it is the file that "
        "was meant and that the label stands in the column that is read."
    )
    E148 = (
        "The pipeline {name!r} has no component 'elmo' (found: {found}). Give a pipeline that has "
        "one, or weights: a built-in name, a model folder, or an options.json."
    )
    E149 = (
        "Pictures need the package matplotlib, which cannot be imported ({problem}). Install it: "
        "pip install 'spacy-elmo[viz]'."
    )
    E150 = (
        "The folder {path!s} has no {part} part: looked for {expected}. Give a folder with these "
        "files, or name the files themselves."
    )
    E151 = (
        "The token {text!r} is whitespace, which the model does not see as a word. Give a token "
        "that is a word."
    )
    E152 = (
        "The text {text!r} has only the mixed vectors on it, not the layers. Set the component's "
        "store to 'layers', or ask for layer='mix'."
    )
    # Inference engine
    E160 = (
        "The precision is {found!r}, expected one of: {allowed}. Use one of these; float32 is "
        "exact."
    )
    E161 = (
        "The weights are {found}, but the precision {precision} is computed from float32 weights "
        "on the CPU. Move the model there (.float().cpu()), or use precision='float32'."
    )

    # Bulk embedding, more of it
    E162 = (
        "The segmenter 'sents' takes the sentences that a pipeline or a DocBin has set, but "
        "{path!s} is not a DocBin and no pipeline was named. For raw text give --model and a "
        "pipeline that sets them; a line of tokens is one sentence as it is, without --segmenter."
    )

    # Language model, more of it: 170-174
    E170 = (
        "The initial state is 'carry', expected 'zero' or 'primed': with states that are carried "
        "on, a sentence's scores depend on the batches and their order. Load the model with "
        'another one: --initial-state zero, or initial_state="zero" in Python.'
    )

    # Runs of the trainer, continued: 175-179
    E175 = (
        "{path!s} is in use: another process is training in this folder. Wait for it, or choose "
        "another output folder."
    )
    E176 = (
        "{n} of {world_size} processes do not find in {path!s} what the first one has written "
        "there. The run's folder must be one that all machines see: put it on a shared file "
        "system."
    )

    # Component and layers, more of it: 180-184
    E180 = "The setting {name} is {found!r}, but {expected} is expected. Change it in the config."
    E181 = (
        "The component elmo was given the model {name!r}, but only spacy-elmo.ElmoEncoder.v1 can "
        "be its model. Name that one under [components.elmo.model], or leave the section out."
    )
    E182 = (
        "The weights are on {device}, which a forked process cannot use. Process texts in one "
        "process (n_process=1), have processes started afresh "
        "(multiprocessing.set_start_method('spawn')), or keep the weights on the CPU."
    )
    E183 = (
        "The component {name!r} has no cache to fill: its weights are trainable, or cache_mb is 0 "
        "and there is no cache_path. Give it a cache_path, and set trainable = false."
    )

    # Replacing listeners: 185-189
    E185 = (
        "nlp.replace_listeners was given {found} for the component {name!r}, but its listeners to "
        "{upstream!r} stand at: {expected}. Nothing was replaced. Give these paths, each once."
    )
    E186 = (
        "nlp.replace_listeners looks for sections of spacy-elmo.ElmoListener.v1 in model.tok2vec "
        "of the listening component's config, but found {found!r} without any. Write the section "
        "out there: neither a reference to another section nor a function of your own that makes "
        "the listener can be followed."
    )
    E187 = (
        "nlp.replace_listeners does not know from which block of a config the segmenter {found} "
        "was made, so what it leaves would cut docs otherwise when it is loaded. Make the "
        "component in this pipeline, with a registered function in its setting segmenter, such "
        "as {known}."
    )

    # Vectors of many docs: 188-189
    E188 = (
        "The texts have vectors of different widths: {found}. One array takes one width: give "
        "texts that went through the same biLM."
    )
