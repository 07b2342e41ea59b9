"""Reinforcement learning: games and their steps, rollouts, losses, replay, search in trees."""

import gymnax
import jax
import pgx


def moved(states, actions):
    return jax.vmap(pgx.make("othello").step)(states, actions)


def cartpoles(number):
    environment, parameters = gymnax.make("CartPole-v1")
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), number))
    visited, states = jax.eval_shape(
        jax.vmap(environment.reset, in_axes=(0, None)), keys, parameters
    )
    return states, visited


def boards(name, number):
    return jax.eval_shape(
        lambda: jax.vmap(pgx.make(name).init)(jax.random.split(jax.random.key(0), number))
    )


states, seen = cartpoles(128)

programs = {
    "moved": (moved, (boards("othello", 100), ("s32", (100,)))),
}
