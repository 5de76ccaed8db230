# SPDX-License-Identifier: Apache-2.0
"""The language of the recall model: facts, sentences that say nothing of use, and questions about the facts.

    the room of zoe is 1142.   tom walked to the river.   ...   what is the room of zoe? 1142.

Every word, digit and each of . , ? is a token. examples/llama/recall_text.cpp writes the same language in C++ for the
demo and the tests; the sentences must stay equal.

A sequence for training is a Text: tokens, positions, the weight that the loss gives to each token, and where answers
begin. Three styles make them:

    doc      facts scattered among fillers, then questions: what the model is measured on
    stream   facts, fillers and questions in any order
    dense    records without grammar, "alice 4821. alice? 4821.": early in training only. From sentences alone the
             model does not find out in good time that a name is looked up.
"""
from dataclasses import dataclass, field

import numpy as np

NAMES = ("alice bob carol david emma frank grace henry iris jack kate liam mary noah olive peter "
         "quinn rose sam tina uma victor wendy xander yara zoe adam bella carl diana eric fiona "
         "george hanna ivan julia kevin laura mark nina oscar paula ralph sara tom ursula vera walter "
         "yuri anna ben clara dan ella felix gina hugo irene jonas karen leo mia nick opal").split()
PLACES = "river market garden station library harbor kitchen forest school tower bridge museum".split()
NOUNS = "dog cat horse lamp letter basket clock boat piano apple kettle chair".split()
ADJECTIVES = "old small quiet bright heavy green cold happy".split()
MOVES = "walked ran drove returned hurried came".split()
DEEDS = "found lost bought painted carried cleaned sold watched".split()
TIMES = "morning evening night winter summer spring".split()
ATTRIBUTES = "code room badge phone".split()
GRAMMAR = "the of is what a and in near to was it with then . , ?".split()
VOCABULARY = (["<s>"] + list("0123456789") + GRAMMAR + ATTRIBUTES + TIMES + MOVES + DEEDS + ADJECTIVES + NOUNS +
              PLACES + NAMES)
ROWS = -(-len(VOCABULARY) // 32) * 32  # of the embedding: rounded up, which matrix products like

IDS = {word: i for i, word in enumerate(VOCABULARY)}
FIRST_DIGIT = IDS["0"]
ANSWER_WEIGHTS = [2.0, 1.0, 1.0, 1.0]  # the first digit says which fact was found
TEXT_WEIGHT = 0.1                      # of all that nobody could know
MAX_POSITION = 4096
QUESTION_TOKENS, FACT_TOKENS = 12, 10


@dataclass
class Style:
    """What kind of sequences a stage of training sees."""
    dense: float = 0.0         # share of dense sequences; half of the others are streams
    gaps: float = 0.0          # share of sequences whose positions jump between sentences: long ways in short texts
    attributes: int = 4        # how many attributes a name may have
    new_digits: float = 0.0    # loss weight of the digits of a fact, which are random: only their being digits is learnt


@dataclass
class Text:
    tokens: list = field(default_factory=lambda: [0])
    weights: list = field(default_factory=lambda: [0.0])
    starts: list = field(default_factory=list)   # first token of each sentence but the first
    answers: list = field(default_factory=list)  # first digit of each answer to a question

    def put(self, tokens, weights):
        self.starts.append(len(self.tokens))
        self.tokens += tokens
        self.weights += weights


def ids(words):
    return [IDS[word] for word in words]


class Writer:
    """Writes texts from `rng`, a random.Random: the same state gives the same text."""

    def __init__(self, rng, style):
        self.rng, self.random, self.style = rng, rng.random, style

    def one_of(self, words):
        return words[int(self.random() * len(words))]

    def filler(self):
        one, kind = self.one_of, int(self.random() * 6)
        if kind == 0:
            words = [one(NAMES), one(MOVES), "to", "the", one(PLACES), "."]
        elif kind == 1:
            words = ["the", one(ADJECTIVES), one(NOUNS), "was", "near", "the", one(PLACES), "."]
        elif kind == 2:
            words = ["in", "the", one(TIMES), ",", one(NAMES), "and", one(NAMES), one(DEEDS), "the", one(ADJECTIVES),
                     one(NOUNS), "."]
        elif kind == 3:
            words = ["it", "was", "a", one(ADJECTIVES), one(TIMES), "in", "the", one(PLACES), "."]
        elif kind == 4:
            words = [one(NAMES), one(DEEDS), "a", one(NOUNS), "with", one(NAMES), "."]
        else:
            words = ["then", one(NAMES), one(MOVES), "to", "the", one(PLACES), "and", one(DEEDS), "the", one(NOUNS),
                     "."]
        return ids(words)

    def digits(self, count=4):
        return [FIRST_DIGIT + int(self.random() * 10) for _ in range(count)]

    def keys(self, count, attributes):
        """`count` different (name, attribute) pairs; names come back with other attributes."""
        names, kinds = NAMES[:], ATTRIBUTES[:]
        self.rng.shuffle(names)
        self.rng.shuffle(kinds)
        if attributes > 1:
            share = 1 + int(count * (0.3 + 0.7 * self.random()))
            names = names[:max(-(-count // attributes), share)]
        pairs = [(name, kind) for name in names for kind in kinds[:attributes]]
        self.rng.shuffle(pairs)
        return pairs[:count]

    def put_filler(self, text):
        tokens = self.filler()
        text.put(tokens, [TEXT_WEIGHT] * len(tokens))

    def put_fact(self, text, key, answer):
        tokens = ids(["the", key[1], "of", key[0], "is"]) + answer + ids(["."])
        text.put(tokens, [TEXT_WEIGHT] * 5 + [self.style.new_digits] * 4 + [TEXT_WEIGHT])

    def put_question(self, text, key, answer):
        tokens = ids(["what", "is", "the", key[1], "of", key[0], "?"]) + answer + ids(["."])
        text.put(tokens, [TEXT_WEIGHT] * 7 + ANSWER_WEIGHTS + [TEXT_WEIGHT])
        text.answers.append(len(text.tokens) - 5)

    def dense(self, length, attributes):
        text, known = Text(), {}
        digits = (1, 1, 2, 4)[int(self.random() * 4)]
        facts = 3 + int(self.random() * 14)
        asks = 0.5 + 0.4 * self.random()
        keys = self.keys(facts, attributes)
        while len(text.tokens) <= length:
            tells = not known or (len(known) < facts and self.random() > asks)
            key = keys[len(known)] if tells else keys[int(self.random() * len(known))]
            if tells:
                known[key] = self.digits(digits)
            words = [key[1], key[0]] if attributes > 1 else [key[0]]
            if self.random() >= 0.5:
                words += ["is"] if tells or self.random() >= 0.7 else ["?"]
            value = [0.0] * digits if tells else ANSWER_WEIGHTS[:digits]
            text.put(ids(words) + known[key] + ids(["."]), [TEXT_WEIGHT] * len(words) + value + [TEXT_WEIGHT])
        return text

    def stream(self, length, attributes):
        text, known = Text(), {}
        facts = 2 + int(self.random() * min(60, length // 24))
        fills, asks = self.random() * 0.5, 0.4 + 0.3 * self.random()
        keys = self.keys(facts, attributes)
        while len(text.tokens) <= length:
            if self.random() < fills:
                self.put_filler(text)
            elif not known or (len(known) < facts and self.random() > asks):
                key = keys[len(known)]
                known[key] = self.digits()
                self.put_fact(text, key, known[key])
            else:
                key = keys[int(self.random() * len(known))]
                self.put_question(text, key, known[key])
        return text

    def doc(self, length, attributes, facts=None, questions=8):
        if facts is None:
            share = 0.25 + 0.65 * self.random()
            questions = max(1, int(length * share / QUESTION_TOKENS))
            facts = 1 + int(self.random() * min(63, length * (1 - share) / FACT_TOKENS))
        text, keys = Text(), self.keys(facts, attributes)
        answers = {key: self.digits() for key in keys}
        left = length - QUESTION_TOKENS * questions - FACT_TOKENS * facts
        sentences = list(keys)
        while len(sentence := self.filler()) <= left:
            left -= len(sentence)
            sentences.append(sentence)
        self.rng.shuffle(sentences)
        for sentence in sentences:
            if isinstance(sentence, tuple):
                self.put_fact(text, sentence, answers[sentence])
            else:
                text.put(sentence, [TEXT_WEIGHT] * len(sentence))
        self.rng.shuffle(keys)
        asked = 0
        while len(text.tokens) + QUESTION_TOKENS <= length + 1:
            key = keys[asked % len(keys)]
            self.put_question(text, key, answers[key])
            asked += 1
        while len(text.tokens) <= length:
            self.put_filler(text)
        return text

    def training_text(self, length):
        attributes = 1 + int(self.random() * self.style.attributes)
        if self.random() < self.style.dense:
            return self.dense(length, attributes)
        return self.stream(length, attributes) if self.random() < 0.5 else self.doc(length, attributes)

    def positions(self, text, length):
        """0, 1, 2 .. or, in a share of the texts, with jumps at the starts of sentences, up to MAX_POSITION."""
        positions = np.arange(length + 1)
        starts = [start for start in text.starts if start <= length]
        if self.random() >= self.style.gaps or not starts:
            return positions
        jumps = np.array([self.random() ** 3 for _ in starts])
        jumps *= int((MAX_POSITION - length - 1) * self.random()) / (jumps.sum() + 1e-9)
        gaps = np.zeros(length + 1, int)
        gaps[starts] = np.floor(jumps)
        return positions + np.cumsum(gaps)


def batch(rng, style, sequences, length):
    """Inputs, targets, positions of the inputs, weights of the targets; each [sequences, length]."""
    tokens = np.zeros((sequences, length + 1), np.int32)
    positions = np.zeros((sequences, length + 1), np.int32)
    weights = np.zeros((sequences, length + 1), np.float32)
    writer = Writer(rng, style)
    for i in range(sequences):
        text = writer.training_text(length)
        tokens[i] = text.tokens[:length + 1]
        weights[i] = text.weights[:length + 1]
        positions[i] = writer.positions(text, length)
    return tokens[:, :-1], tokens[:, 1:], positions[:, :-1], weights[:, 1:]


def test_text(rng, length):
    """Tokens, and where the answers begin: 3/128 facts a token, then eight questions."""
    text = Writer(rng, Style()).doc(length, attributes=4, facts=length * 3 // 128)
    return np.array(text.tokens[:length + 1]), [at for at in text.answers if at + 4 <= length + 1]
