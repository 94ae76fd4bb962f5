"""A model that says how likely given tokens are, and a reader that spares it what it has read. Owns what
is kept and what is read anew; `engine.cpp` owns the model."""

import ctypes
import os
import time

# Tokens that are read at once, and those of them whose likelihood may be asked for.
ROOM = 512
OUTPUTS = 256


class Llama:
    """A GGUF model through libllama."""

    def __init__(self, library, backends, model, window, threads=1, layers=0):
        self.lib = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self.lib.pl_open.restype = ctypes.c_void_p
        self.at = ctypes.c_void_p(
            self.lib.pl_open(
                str(model).encode(), str(backends).encode(), window, ROOM, OUTPUTS, threads, layers
            )
        )
        if not self.at:
            raise SystemExit(f"can't load {model}")
        self.window = window
        self.known = {}

    def tokens(self, text, markup=False, begins=False):
        """The tokens of a text. Special ones are read in markup alone, so that no text can forge them."""
        key = (text, markup, begins)
        if key not in self.known:
            raw = text.encode()
            out = (ctypes.c_int * (len(raw) + 8))()
            args = (raw, len(raw), int(begins), int(markup), out, len(out))
            count = self.lib.pl_tokens(self.at, *args)
            if count < 0:
                raise ValueError("a text has more tokens than bytes")
            self.known[key] = list(out[:count])
        return self.known[key]

    def length(self, token):
        """Bytes of a token."""
        out = ctypes.create_string_buffer(256)
        return max(0, self.lib.pl_piece(self.at, token, out, len(out)))

    def keep(self, length):
        return self.lib.pl_keep(self.at, length)

    def mark(self):
        self.lib.pl_mark(self.at)

    def read(self, tokens, following):
        count = len(tokens)
        own, next_ = (ctypes.c_int * count)(*tokens), (ctypes.c_int * count)(*following)
        out = (ctypes.c_double * count)()
        if self.lib.pl_read(self.at, own, next_, count, out):
            raise RuntimeError("the model can't read on")
        return list(out)


def common(left, right):
    """How many tokens two texts have in common at the front."""
    count = 0
    for one, other in zip(left, right):
        if one != other:
            break
        count += 1
    return count


def resumed(have, context, answer):
    """Up to where a text need not be read when `have` was: the last token of the context says how likely
    the first of the answer is."""
    return min(common(have, context + answer), len(context) - 1)


def cuts(texts, at):
    """Where the texts behind the one at `at` will part from it, in a list in which neighbours have most
    in common. A text further on has no more in common with this one than any between them."""
    whole = sum(texts[at], [])
    shared, found = len(whole), set()
    for before, answer in texts[at + 1 :]:
        shared = min(shared, common(whole[:shared], before + answer))
        found.add(min(shared, len(before) - 1))
        if shared == 0:
            break
    return found


class Reader:
    """Reads text after text, and only what the one before it did not have at its front."""

    def __init__(self, model, pause=None):
        self.model, self.pause = model, pause
        self.have = []

    def score(self, context, answer, cuts=()):
        """The log-probability of each token of an answer behind a context, and how many tokens had to be
        read. `cuts` are the places where later texts part from this one: there the model's state is
        marked."""
        whole = context + answer
        # Nobody asks what follows the last token.
        first, stop = len(context) - 1, len(whole) - 1
        kept = at = self.model.keep(resumed(self.have, context, answer))
        found = []
        while at < stop:
            self.wait()
            end = min(stop, at + ROOM, max(at, first) + OUTPUTS)
            end = min((cut for cut in cuts if at < cut < end), default=end)
            following = [whole[i + 1] if i >= first else -1 for i in range(at, end)]
            # A model that fails has forgotten all.
            self.have = []
            read = self.model.read(whole[at:end], following)
            found += [lp for lp, token in zip(read, following) if token >= 0]
            self.have, at = whole[:end], end
            if at in cuts:
                self.model.mark()
        return found, stop - kept

    def wait(self):
        """Waits while somebody measures."""
        while self.pause and os.path.exists(self.pause):
            time.sleep(2)
