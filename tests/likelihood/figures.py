"""The arithmetic of the report: ranks, resampled intervals, which token stands in which string. Pure;
never reads a file."""

import random


def mean(values):
    values = list(values)
    return sum(values) / len(values) if values else float("nan")


def resampled(values, groups, count=2000, seed=1):
    """The 95 % interval of a mean where whole groups are drawn with replacement: turns of one session are
    no independent witnesses."""
    by_group = {}
    for value, group in zip(values, groups):
        by_group.setdefault(group, []).append(value)
    sums = [(sum(own), len(own)) for _, own in sorted(by_group.items())]
    draw = random.Random(seed)
    means = []
    for _ in range(count):
        drawn = [sums[draw.randrange(len(sums))] for _ in sums]
        means.append(sum(total for total, _ in drawn) / sum(n for _, n in drawn))
    means.sort()
    return means[int(count * 0.025)], means[int(count * 0.975) - 1]


def ranks(values):
    """The rank of each value; equal ones share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    found = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end < len(order) and values[order[end]] == values[order[at]]:
            end += 1
        for one in order[at:end]:
            found[one] = (at + end - 1) / 2
        at = end
    return found


def rank_correlation(left, right):
    """Spearman's; none where one side is all the same."""
    a, b = ranks(left), ranks(right)
    ma, mb = mean(a), mean(b)
    va = sum((x - ma) ** 2 for x in a)
    vb = sum((x - mb) ** 2 for x in b)
    if va == 0 or vb == 0:
        return None
    return sum((x - ma) * (y - mb) for x, y in zip(a, b)) / (va * vb) ** 0.5


def classes(answer, lengths, strings):
    """For each token of an answer the class of the string that it stands in, or None. `lengths` are the
    tokens' bytes, `strings` lists by class; the longest string that stands somewhere wins."""
    raw = answer.encode()
    marks = [None] * len(raw)
    named = [(word.encode(), name) for name, words in strings.items() for word in words]
    for word, name in sorted(named, key=lambda one: len(one[0])):
        at = raw.find(word)
        while at >= 0 and word:
            marks[at : at + len(word)] = [name] * len(word)
            at = raw.find(word, at + len(word))
    found, at = [], 0
    for length in lengths:
        inside = [mark for mark in marks[at : at + length] if mark]
        found.append(inside[-1] if inside else None)
        at += length
    return found


def within_turns(turns, measure, value):
    """How a measure ranks the views of one turn beside a value, as the mean rank correlation over those
    turns in which both differ, the interval over sessions, and how many turns these are. `turns` is a list
    of (session, views); of a view `measure` and `value` give numbers, or None."""
    found, sessions = [], []
    for session, views in turns:
        pairs = [(measure(view), value(view)) for view in views]
        pairs = [(m, v) for m, v in pairs if m is not None and v is not None]
        if len(pairs) < 3:
            continue
        rho = rank_correlation([m for m, _ in pairs], [v for _, v in pairs])
        if rho is not None:
            found.append(rho)
            sessions.append(session)
    if not found:
        return None
    return mean(found), *resampled(found, sessions), len(found)
