"""Small simulations, for the replay of the CPU fusion passes."""

import jax
import jax.numpy as jnp
from jax import lax


def pendulums(angles, speeds, key):
    def step(carry, key):
        angles, speeds = carry
        torque = jnp.clip(2.0 * jax.random.normal(key, angles.shape), -2.0, 2.0)
        speeds = jnp.clip(speeds + 0.05 * (15.0 * jnp.sin(angles) + 3.0 * torque), -8.0, 8.0)
        angles = angles + 0.05 * speeds
        wrapped = (angles + jnp.pi) % (2.0 * jnp.pi) - jnp.pi
        return (angles, speeds), -(wrapped**2 + 0.1 * speeds**2 + 0.001 * torque**2)

    return lax.scan(step, (angles, speeds), jax.random.split(key, 20))


def mountain_cars(position, velocity, action, key):
    velocity = velocity + (action - 1) * 0.001 - 0.0025 * jnp.cos(3.0 * position)
    velocity = jnp.clip(velocity, -0.07, 0.07)
    position = jnp.clip(position + velocity, -1.2, 0.6)
    velocity = jnp.where((position == -1.2) & (velocity < 0), 0.0, velocity)
    done = position >= 0.5
    fresh = jax.random.uniform(key, position.shape, minval=-0.6, maxval=-0.4)
    return jnp.where(done, fresh, position), jnp.where(done, 0.0, velocity), done, -1.0 + done


ACROSS = (0, 1, 0, -1, 0, 1, -1, -1, 1)
ALONG = (0, 0, 1, 0, -1, 1, 1, -1, -1)


def lattice_boltzmann(flow, walls):
    across, along = jnp.array(ACROSS)[:, None, None], jnp.array(ALONG)[:, None, None]
    shares = jnp.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)[:, None, None]

    def step(_, flow):
        density = flow.sum(axis=0)
        right, up = (flow * across).sum(axis=0) / density, (flow * along).sum(axis=0) / density
        speed = 3.0 * (across * right + along * up)
        settled = shares * density * (1.0 + speed + 0.5 * speed**2 - 1.5 * (right**2 + up**2))
        flow = flow + 1.2 * (settled - flow)
        flow = jnp.where(walls, flow[jnp.array([0, 3, 4, 1, 2, 7, 8, 5, 6])], flow)
        moved = [jnp.roll(flow[i], (ACROSS[i], ALONG[i]), (0, 1)) for i in range(9)]
        return jnp.stack(moved)

    return lax.fori_loop(0, 8, step, flow)


def life(alive):
    def step(_, alive):
        cells = alive.astype(jnp.uint8)
        rows = cells + jnp.roll(cells, 1, 0) + jnp.roll(cells, -1, 0)
        around = rows + jnp.roll(rows, 1, 1) + jnp.roll(rows, -1, 1) - cells
        return (around == 3) | (alive & (around == 2))

    return lax.fori_loop(0, 30, step, alive)


def bodies(places, speeds, masses):
    def pull(places):
        apart = places[None] - places[:, None]
        distance = jnp.sqrt((apart**2).sum(axis=-1) + 1e-3)
        return (apart * (masses / distance**3)[..., None]).sum(axis=1)

    def step(carry, _):
        places, speeds = carry
        speeds = speeds + 0.005 * pull(places)
        places = places + 0.01 * speeds
        speeds = speeds + 0.005 * pull(places)
        return (places, speeds), 0.5 * (masses[:, None] * speeds**2).sum()

    return lax.scan(step, (places, speeds), length=10)


def automaton(cells):
    rule = jnp.array([0, 1, 1, 1, 0, 1, 1, 0], jnp.uint8)

    def step(cells, _):
        number = 4 * jnp.roll(cells, 1) + 2 * cells + jnp.roll(cells, -1)
        return rule[number], cells.sum(dtype=jnp.int32)

    return lax.scan(step, cells, length=64)


def ising(spins, heat, key):
    rows, columns = jnp.indices(spins.shape)

    def half(spins, key, parity):
        around = sum(jnp.roll(spins, shift, axis) for shift in (1, -1) for axis in (0, 1))
        cost = 2.0 * (spins * around).astype(jnp.float32)
        taken = jax.random.uniform(key, spins.shape) < jnp.exp(-cost / heat)
        return jnp.where(taken & ((rows + columns) % 2 == parity), -spins, spins)

    def sweep(spins, key):
        first, second = jax.random.split(key)
        spins = half(half(spins, first, 0), second, 1)
        return spins, spins.astype(jnp.float32).mean()

    return lax.scan(sweep, spins, jax.random.split(key, 5))


def particle_filter(particles, observed, key):
    first, second = jax.random.split(key)
    place, speed = particles.T
    speed = 0.95 * speed + 0.1 * jax.random.normal(first, speed.shape)
    place = place + speed
    weights = jax.nn.softmax(-0.5 * (place - observed) ** 2)
    count = place.shape[0]
    ticks = (jnp.arange(count) + jax.random.uniform(second)) / count
    chosen = jnp.searchsorted(jnp.cumsum(weights), ticks).clip(0, count - 1)
    return jnp.stack([place, speed], axis=1)[chosen], (weights @ place), 1.0 / (weights**2).sum()


def marched(origin, centres, radii):
    rows, columns = jnp.mgrid[-1:1:30j, -1:1:44j]
    rays = jnp.stack([columns, rows, jnp.ones_like(rows)], axis=-1)
    rays = rays / jnp.linalg.norm(rays, axis=-1, keepdims=True)

    def distance(points):
        apart = points[..., None, :] - centres
        return (jnp.sqrt((apart**2).sum(axis=-1)) - radii).min(axis=-1)

    def step(_, depth):
        return depth + distance(origin + depth[..., None] * rays)

    depth = lax.fori_loop(0, 24, step, jnp.zeros(rows.shape))
    points = origin + depth[..., None] * rays
    slopes = jax.grad(lambda p: distance(p).sum())(points)
    light = jnp.maximum(slopes @ jnp.array([0.5, -0.7, -0.5]), 0.1)
    return jnp.where(depth < 20.0, light, 0.0)


def option_price(spot, strike, volatility, key):
    steps = 12
    noise = jax.random.normal(key, (steps, 3001))
    drift = (0.03 - 0.5 * volatility**2) / steps
    path = spot * jnp.exp(jnp.cumsum(drift + volatility * noise / steps**0.5, axis=0))
    asian = jnp.maximum(path.mean(axis=0) - strike, 0.0)
    barrier = jnp.where(path.max(axis=0) < 2.0 * strike, asian, 0.0)
    return jnp.exp(-0.03) * (asian.mean() + barrier.mean())


def wave(before, now, speed):
    def step(carry, _):
        before, now = carry
        laplacian = -6.0 * now
        for axis in range(3):
            laplacian = laplacian + jnp.roll(now, 1, axis) + jnp.roll(now, -1, axis)
        after = 2.0 * now - before + speed * laplacian
        after = after.at[0].set(0.0).at[:, 0].set(0.0).at[:, :, 0].set(after[:, :, 1])
        return (now, after), after[8, 9]

    return lax.scan(step, (before, now), length=16)


def heat(rod):
    def step(rod, time):
        rod = jnp.concatenate([rod[:1], rod[1:-1] + 0.2 * jnp.diff(rod, 2), rod[-2:-1]])
        return rod.at[0].set(jnp.sin(0.1 * time)), rod[::100]

    return lax.scan(step, rod, jnp.arange(50.0))


def sandpile(grains):
    def topple(grains):
        falling = grains // 4
        around = jnp.pad(falling, 1)
        gained = around[:-2, 1:-1] + around[2:, 1:-1] + around[1:-1, :-2] + around[1:-1, 2:]
        return grains - 4 * falling + gained

    return lax.while_loop(lambda grains: (grains > 3).any(), topple, grains)


def reaction(chemicals):
    """Two chemicals of Gray and Scott; a convolution spreads them."""
    kernel = jnp.array([[0.05, 0.2, 0.05], [0.2, -1.0, 0.2], [0.05, 0.2, 0.05]])[None, None]

    def step(_, chemicals):
        spread = lax.conv_general_dilated(chemicals[:, None], kernel, (1, 1), "SAME")[:, 0]
        first, second = chemicals
        rate = first * second * second
        change = jnp.stack([0.035 * (1.0 - first) - rate, rate - 0.1 * second])
        return chemicals + change + spread * jnp.array([0.16, 0.08])[:, None, None]

    return lax.fori_loop(0, 6, step, chemicals)


def value_iteration(rewards, open_):
    def step(carry):
        values, _ = carry
        moved = jnp.stack([jnp.roll(values, s, a) for s in (1, -1) for a in (0, 1)], axis=-1)
        best = jnp.where(open_, rewards + 0.95 * moved.max(axis=-1), -10.0)
        return best, jnp.abs(best - values).max()

    values, _ = lax.while_loop(lambda c: c[1] > 1e-3, step, (rewards, jnp.float32(1.0)))
    return values, jnp.argmax(values, axis=1)


def waiting(arrivals, services):
    """How long each client of a queue waits, by a prefix maximum."""
    steps = jnp.cumsum(services[:, :-1] - jnp.diff(arrivals, axis=1), axis=1)
    steps = jnp.pad(steps, ((0, 0), (1, 0)))
    waits = steps - jnp.minimum(lax.cummin(steps, axis=1), 0.0)
    return waits.mean(axis=1), (waits > 5.0).mean(), waits + services


def epidemic(states, contacts, key):
    def day(states, key):
        catching, healing = jax.random.uniform(key, (2, *states.shape))
        risk = 1.0 - jnp.exp(-0.1 * contacts @ (states == 1).astype(jnp.float32))
        states = jnp.where((states == 0) & (catching < risk), 1, states)
        states = jnp.where((states == 1) & (healing < 0.1), 2, states)
        return states, jnp.bincount(states, length=3)

    return lax.scan(day, states.astype(jnp.int32), jax.random.split(key, 9))


key, many = ("u32", (2,)), ("f32", (4096,))
volume, scalar = ("f32", (17, 19, 23)), ("f32", ())

programs = {
    "pendulums": (pendulums, (("f32", (257,)), ("f32", (257,)), key)),
    "mountain_cars": (mountain_cars, (many, many, ("s32", (4096,)), key)),
    "lattice_boltzmann": (lattice_boltzmann, (("f32", (9, 48, 62)), ("pred", (48, 62)))),
    "life": (life, (("pred", (61, 93)),)),
    "bodies": (bodies, (("f32", (70, 3)), ("f32", (70, 3)), ("f32", (70,)))),
    "automaton": (automaton, (("u8", (129,)),)),
    "ising": (ising, (("s8", (32, 34)), scalar, key)),
    "particle_filter": (particle_filter, (("f32", (1000, 2)), scalar, key)),
    "marched": (marched, (("f32", (3,)), ("f32", (5, 3)), ("f32", (5,)))),
    "option_price": (
        jax.value_and_grad(option_price, argnums=(0, 2)),
        (scalar, scalar, scalar, key),
    ),
    "wave": (wave, (volume, volume, volume)),
    "heat": (heat, (("f32", (4501,)),)),
    "sandpile": (sandpile, (("s32", (31, 35)),)),
    "reaction": (reaction, (("f32", (2, 54, 60)),)),
    "value_iteration": (value_iteration, (("f32", (15, 17)), ("pred", (15, 17)))),
    "waiting": (waiting, (("f32", (8, 701)), ("f32", (8, 701)))),
    "epidemic": (epidemic, (("u8", (110,)), ("f32", (110, 110)), key)),
}
