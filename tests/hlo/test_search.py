"""Searches: on graphs whose order can be read off, and on chains longer than Python's stack."""

import pytest

from fusionscope.hlo.search import post_order, reachable, unfold

GRAPH = {"a": "bc", "b": "d", "c": "de", "d": "f", "e": "", "f": "", "g": "a"}
SEARCHES = reachable, post_order


@pytest.mark.parametrize("search", SEARCHES)
def test_it_yields_each_node_once(search):
    nodes = list(search("aa", GRAPH.__getitem__))
    assert sorted(nodes) == list("abcdef")


def test_the_orders():
    assert "".join(reachable("a", GRAPH.__getitem__)) == "acedfb"
    assert "".join(post_order("a", GRAPH.__getitem__)) == "fdbeca"


def test_neighbours_are_asked_for_after_their_node():
    options = []
    nodes = reachable("a", lambda node: options.append(node) or GRAPH[node])
    assert next(nodes) == "a"
    assert not options


@pytest.mark.parametrize("search", SEARCHES)
def test_it_ends_in_a_circle(search):
    assert sorted(search("a", {"a": "b", "b": "ca", "c": "a"}.__getitem__)) == list("abc")


@pytest.mark.parametrize("search", (*SEARCHES, unfold))
def test_chains_may_be_long(search):
    nodes = search([0], lambda node: [node + 1] if node < 50_000 else [])
    assert sum(1 for _ in nodes) == 50_001


def test_a_tree_is_unfolded_in_the_order_in_which_it_is_written():
    def elements(part):
        return part if isinstance(part, tuple) else ()

    parts = unfold([(1, (2, (), 3)), 4], elements)
    assert [part for part in parts if isinstance(part, int)] == [1, 2, 3, 4]


def test_a_tree_repeats_what_it_holds_twice():
    assert "".join(unfold("a", GRAPH.__getitem__)) == "abdfcdfe"
