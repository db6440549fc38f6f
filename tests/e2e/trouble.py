"""Faults at random, from a seed."""

import collections
import random
import threading
import time


class Trouble:
    """Two faults at a time, on targets of their own, so that there are nodes that could take what is not theirs; all kinds come before one comes again."""

    def __init__(self, kinds, seed, until, journal):
        self.kinds, self.until, self.journal = kinds, until, journal
        self.dice, self.lock, self.deck, self.busy, self.count = random.Random(seed), threading.Lock(), [], set(), collections.Counter()

    def run(self):
        while drawn := self.draw():
            kind, target, dice = drawn
            self.journal.append(f"{time.strftime('%X')} {target}: {kind} begins")
            self.kinds[kind][target](dice)
            self.journal.append(f"{time.strftime('%X')} {target}: {kind} is over")
            self.busy.discard(target)
            time.sleep(dice.uniform(0, 1))

    def draw(self):
        with self.lock:
            if time.monotonic() > self.until and len(self.count) == len(self.kinds):
                return None
            while True:
                for kind in self.deck:
                    if free := [target for target in self.kinds[kind] if target not in self.busy]:
                        self.deck.remove(kind)
                        target = self.dice.choice(free)
                        self.busy.add(target)
                        self.count[kind] += 1
                        return kind, target, random.Random(self.dice.random())
                self.deck += self.dice.sample(list(self.kinds), len(self.kinds))
