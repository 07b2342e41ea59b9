"""Reinforcement learning: games and their steps, rollouts, losses, replay, search in trees."""

import itertools

import gymnax
import jax
import jax.numpy as jnp
import mctx
import optax
import pgx
from jax import lax

KEY = jax.ShapeDtypeStruct((2,), "uint32")


def network(layers, inputs):
    for weight, bias in layers[:-1]:
        inputs = jnp.tanh(inputs @ weight + bias)
    return inputs @ layers[-1][0] + layers[-1][1]


def described(*widths):
    return [(("f32", pair), ("f32", pair[1:])) for pair in itertools.pairwise(widths)]


def rolled(weights, states, seen, bits):
    """A rollout of many environments in step with a policy, restarts included."""
    environment, parameters = gymnax.make("CartPole-v1")

    def step(carry, key):
        states, seen = carry
        first, second = jax.random.split(key)
        logits, value = network(weights["policy"], seen), network(weights["value"], seen)
        action = jax.random.categorical(first, logits)
        likely = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        keys = jax.random.split(second, seen.shape[0])
        stepped = jax.vmap(environment.step, in_axes=(0, 0, 0, None))
        following, states, reward, done, *_ = stepped(keys, states, action, parameters)
        return (states, following), (seen, action, likely, value[:, 0], reward, done)

    keys = jax.random.split(jax.random.wrap_key_data(bits), 32)
    (states, seen), path = lax.scan(step, (states, seen), keys)
    last = network(weights["value"], seen)[:, 0]

    def advantage(carry, slices):
        ahead, following = carry
        *_, value, reward, done = slices
        going = 1.0 - done
        change = reward + 0.99 * following * going - value
        ahead = change + 0.99 * 0.95 * going * ahead
        return (ahead, value), ahead

    _, ahead = lax.scan(advantage, (jnp.zeros_like(last), last), path, reverse=True)
    return states, seen, path, ahead


def clipped_step(weights, state, path, ahead, bits):
    """Epochs over shuffled parts of a rollout, each with a clipped policy step."""
    seen, action, likely, value, *_ = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), path)
    ahead = ahead.reshape(-1)
    data = (seen, action, likely, value, ahead, ahead + value)

    def loss(weights, part):
        seen, action, likely, value, ahead, target = part
        logarithms = jax.nn.log_softmax(network(weights["policy"], seen))
        now = jnp.take_along_axis(logarithms, action[:, None], axis=1)[:, 0]
        ratio = jnp.exp(now - likely)
        ahead = (ahead - ahead.mean()) / (ahead.std() + 1e-8)
        gain = jnp.minimum(ratio * ahead, jnp.clip(ratio, 0.8, 1.2) * ahead).mean()
        guess = network(weights["value"], seen)[:, 0]
        near = value + jnp.clip(guess - value, -0.2, 0.2)
        error = jnp.maximum((guess - target) ** 2, (near - target) ** 2).mean()
        entropy = -(jnp.exp(logarithms) * logarithms).sum(axis=-1).mean()
        return 0.5 * error - gain - 0.01 * entropy, (jnp.abs(ratio - 1.0) > 0.2).mean()

    def epoch(carry, key):
        order = jax.random.permutation(key, ahead.shape[0])
        parts = jax.tree.map(lambda x: x[order].reshape(4, -1, *x.shape[1:]), data)

        def step(carry, part):
            weights, state = carry
            (value, clipped), change = jax.value_and_grad(loss, has_aux=True)(weights, part)
            change, state = optimizer.update(change, state, weights)
            return (optax.apply_updates(weights, change), state), (value, clipped)

        return lax.scan(step, carry, parts)

    keys = jax.random.split(jax.random.wrap_key_data(bits), 3)
    return lax.scan(epoch, (weights, state), keys)


def replayed_step(weights, target, memory, place, fresh, bits):
    """New transitions in a ring, a sample by priority, a distributional double update."""
    memory = jax.tree.map(
        lambda old, new: lax.dynamic_update_slice_in_dim(old, new, place, axis=0), memory, fresh
    )
    seen, action, reward, done, following, priority = memory
    key = jax.random.wrap_key_data(bits)
    total = jnp.cumsum(priority**0.6)
    ticks = (jnp.arange(64) + jax.random.uniform(key, (64,))) / 64 * total[-1]
    chosen = jnp.searchsorted(total, ticks)
    share = priority[chosen] ** 0.6 / total[-1]
    importance = (priority.shape[0] * share) ** -0.4
    seen, following = seen[chosen] / 255.0, following[chosen] / 255.0
    levels = jnp.linspace(-10.0, 10.0, 51)

    def spread(weights, seen):
        return jax.nn.log_softmax(network(weights, seen).reshape(-1, 6, 51))

    def loss(weights):
        best = jnp.argmax((jnp.exp(spread(weights, following)) * levels).sum(axis=-1), axis=-1)
        ahead = jnp.exp(spread(target, following))
        ahead = jnp.take_along_axis(ahead, best[:, None, None], axis=1)[:, 0]
        moved = reward[chosen][:, None] + 0.99 * (1.0 - done[chosen])[:, None] * levels
        place = (jnp.clip(moved, -10.0, 10.0) + 10.0) / 0.4
        near = jnp.clip(1.0 - jnp.abs(place[:, None] - jnp.arange(51.0)[:, None]), 0.0, 1.0)
        wanted = lax.stop_gradient((near * ahead[:, None]).sum(axis=-1))
        now = spread(weights, seen)
        now = jnp.take_along_axis(now, action[chosen][:, None, None], axis=1)[:, 0]
        losses = -(wanted * now).sum(axis=-1)
        return (losses * importance / importance.max()).mean(), losses

    (value, losses), change = jax.value_and_grad(loss, has_aux=True)(weights)
    weights = jax.tree.map(lambda w, g: w - 1e-3 * jnp.clip(g, -1.0, 1.0), weights, change)
    target = jax.tree.map(lambda t, w: 0.995 * t + 0.005 * w, target, weights)
    memory = (*memory[:-1], priority.at[chosen].set(losses + 1e-3))
    return weights, target, memory, value


def soft_losses(weights, targets, heat, batch, bits):
    """Two critics, a squashed normal policy, and a temperature that follows its entropy."""
    seen, action, reward, done, following = batch
    first, second = jax.random.split(jax.random.wrap_key_data(bits))

    def act(weights, seen, key):
        mean, spread = jnp.split(network(weights, seen), 2, axis=-1)
        spread = jnp.clip(spread, -5.0, 2.0)
        noise = jax.random.normal(key, mean.shape)
        raw = mean + jnp.exp(spread) * noise
        likely = -0.5 * noise**2 - spread - 0.9189385
        likely = likely - 2.0 * (jnp.log(2.0) - raw - jax.nn.softplus(-2.0 * raw))
        return jnp.tanh(raw), likely.sum(axis=-1)

    def worth(critics, seen, action):
        joined = jnp.concatenate([seen, action], axis=-1)
        return jax.vmap(network, in_axes=(0, None))(critics, joined)[..., 0]

    def critic_loss(critics):
        ahead, likely = act(weights["policy"], following, first)
        low = worth(targets, following, ahead).min(axis=0) - jnp.exp(heat) * likely
        goal = lax.stop_gradient(reward + 0.99 * (1.0 - done) * low)
        return jnp.square(worth(critics, seen, action) - goal).mean()

    def policy_loss(policy, heat):
        fresh, likely = act(policy, seen, second)
        low = worth(weights["critics"], seen, fresh).min(axis=0)
        fixed = lax.stop_gradient(likely)
        cost = (lax.stop_gradient(jnp.exp(heat)) * likely - low).mean()
        return cost - (jnp.exp(heat) * (fixed - action.shape[-1])).mean()

    critics = jax.value_and_grad(critic_loss)(weights["critics"])
    policy = jax.value_and_grad(policy_loss, argnums=(0, 1))(weights["policy"], heat)
    return critics, policy


def corrected_loss(logits, values, behaviour, actions, rewards, going):
    """The loss of an actor far behind its learner, with ratios cut on the way back."""
    logarithms = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(logarithms, actions[..., None], axis=-1)[..., 0]
    ratio = jnp.exp(lax.stop_gradient(chosen) - behaviour)
    cut = jnp.minimum(1.0, ratio)
    fixed = lax.stop_gradient(values)
    following = jnp.concatenate([fixed[1:], fixed[-1:]])
    change = cut * (rewards + 0.99 * going * following - fixed)

    def step(ahead, slices):
        change, going, cut = slices
        ahead = change + 0.99 * going * cut * ahead
        return ahead, ahead

    _, shift = lax.scan(step, jnp.zeros_like(values[0]), (change, going, cut), reverse=True)
    target = shift + fixed
    ahead = jnp.concatenate([target[1:], fixed[-1:]])
    gain = jnp.minimum(1.0, ratio) * (rewards + 0.99 * going * ahead - fixed)
    entropy = -(jnp.exp(logarithms) * logarithms).sum(axis=-1)
    return (0.5 * (target - values) ** 2 - chosen * gain - 0.01 * entropy).mean()


def searched(weights, states, bits):
    """A search in trees of a board game, with the game itself as the model."""
    game = pgx.make("connect_four")

    def judged(states):
        inputs = states.observation.reshape(states.observation.shape[0], -1).astype(jnp.float32)
        logits = network(weights["policy"], inputs)
        logits = jnp.where(states.legal_action_mask, logits, -1e9)
        return logits, jnp.tanh(network(weights["value"], inputs)[:, 0])

    def recurrent(_, key, action, states):
        mover = states.current_player
        states = jax.vmap(game.step)(states, action)
        logits, value = judged(states)
        reward = jnp.take_along_axis(states.rewards, mover[:, None], axis=1)[:, 0]
        value = jnp.where(states.terminated, 0.0, value)
        discount = jnp.where(states.terminated, 0.0, -1.0)
        output = mctx.RecurrentFnOutput(
            reward=reward, discount=discount, prior_logits=logits, value=value
        )
        return output, states

    logits, value = judged(states)
    root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=states)
    output = mctx.gumbel_muzero_policy(
        weights,
        jax.random.wrap_key_data(bits),
        root,
        recurrent,
        num_simulations=8,
        invalid_actions=~states.legal_action_mask,
    )
    return output.action, output.action_weights


def moved(states, actions):
    return jax.vmap(pgx.make("othello").step)(states, actions)


def grid_world(walls, visits, places, goals, actions, bits):
    """Agents in a maze: moves, walls, goals, what each one sees, and a bonus for new places."""
    steps = jnp.array([[0, 1], [1, 0], [0, -1], [-1, 0], [0, 0]])
    size = walls.shape[0]
    wanted = jnp.clip(places + steps[actions], 0, size - 1)
    blocked = walls[wanted[:, 0], wanted[:, 1]]
    places = jnp.where(blocked[:, None], places, wanted)
    crowd = jnp.zeros((size, size), jnp.int32).at[places[:, 0], places[:, 1]].add(1)
    alone = crowd[places[:, 0], places[:, 1]] == 1
    done = (places == goals).all(axis=-1)
    visits = visits.at[places[:, 0], places[:, 1]].add(1)
    bonus = lax.rsqrt(visits[places[:, 0], places[:, 1]].astype(jnp.float32))
    reward = done * 1.0 - 0.1 * ~alone + 0.01 * bonus
    layers = jnp.stack([walls.astype(jnp.float32), crowd.astype(jnp.float32)], axis=-1)
    padded = jnp.pad(layers, ((3, 3), (3, 3), (0, 0)), constant_values=1.0)
    seen = jax.vmap(lambda place: lax.dynamic_slice(padded, (*place, 0), (7, 7, 2)))(places)
    fresh = jax.random.randint(jax.random.wrap_key_data(bits), places.shape, 0, size)
    return jnp.where(done[:, None], fresh, places), visits, reward, seen


optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(2.5e-4, eps=1e-5))


def shaped(tree):
    """The described leaves as shapes, which optax asks for."""
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf[1], "float32"),
        tree,
        is_leaf=lambda node: isinstance(node, tuple) and isinstance(node[0], str),
    )


def cartpoles(number):
    environment, parameters = gymnax.make("CartPole-v1")
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), number))
    seen, states = jax.eval_shape(jax.vmap(environment.reset, in_axes=(0, None)), keys, parameters)
    return states, seen


def boards(name, number):
    return jax.eval_shape(
        lambda: jax.vmap(pgx.make(name).init)(jax.random.split(jax.random.key(0), number))
    )


bits, flags = ("u32", (2,)), ("f32", (5000,))
players = shaped({"policy": described(4, 64, 64, 2), "value": described(4, 64, 64, 1)})
states, seen = cartpoles(128)
*_, path, ahead = jax.eval_shape(rolled, players, states, seen, KEY)
frames, fresh_frames = ("u8", (5000, 84)), ("u8", (16, 84))
double = [(("f32", (2, *w[1])), ("f32", (2, *b[1]))) for w, b in described(23, 128, 128, 1)]
scores = ("f32", (60, 32))

programs = {
    "rolled": (rolled, (players, states, seen, bits)),
    "clipped_step": (
        clipped_step,
        (players, jax.eval_shape(optimizer.init, players), path, ahead, bits),
        {"donate": (0, 1)},
    ),
    "replayed_step": (
        replayed_step,
        (
            described(84, 256, 306),
            described(84, 256, 306),
            (frames, ("s32", (5000,)), flags, flags, frames, flags),
            ("s32", ()),
            (
                fresh_frames,
                ("s32", (16,)),
                ("f32", (16,)),
                ("f32", (16,)),
                fresh_frames,
                ("f32", (16,)),
            ),
            bits,
        ),
        {"donate": (2,)},
    ),
    "soft_losses": (
        soft_losses,
        (
            {"policy": described(17, 128, 128, 12), "critics": double},
            double,
            ("f32", ()),
            (
                ("f32", (256, 17)),
                ("f32", (256, 6)),
                ("f32", (256,)),
                ("f32", (256,)),
                ("f32", (256, 17)),
            ),
            bits,
        ),
    ),
    "corrected_loss_gradient": (
        jax.grad(corrected_loss, argnums=(0, 1)),
        (("f32", (60, 32, 18)), scores, scores, ("s32", (60, 32)), scores, scores),
    ),
    "searched": (
        searched,
        (
            {"policy": described(84, 64, 7), "value": described(84, 64, 1)},
            boards("connect_four", 24),
            bits,
        ),
    ),
    "moved": (moved, (boards("othello", 100), ("s32", (100,)))),
    "grid_world": (
        grid_world,
        (
            ("pred", (19, 19)),
            ("s32", (19, 19)),
            ("s32", (700, 2)),
            ("s32", (700, 2)),
            ("s32", (700,)),
            bits,
        ),
    ),
}
