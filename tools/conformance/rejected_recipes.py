"""Edits that were tried and are no recipes: ``recipe_proofs.py`` measures what they save.

Most save nothing, or save on one backend and cost on the other what no pattern can tell beforehand.
"""

from fusionscope.advise.recipes.example import Example

REJECTED: dict[str, Example] = {
    "embedding gradient as a product with one-hot rows": Example(
        ("f32[512,256]", "s32[2048]", "f32[2048,256]"),
        """
def program(table, tokens, weights):
    return jax.grad(lambda table: (table[tokens] * weights).sum())(table)
""",
        """
def program(table, tokens, weights):
    return jax.nn.one_hot(tokens, table.shape[0], dtype=table.dtype).T @ weights
""",
    ),
    "scatter with `indices_are_sorted` and `unique_indices`": Example(
        ("f32[4096,128]", "s32[8]", "f32[8,128]"),
        """
def program(table, start, rows):
    return table.at[start.sum() + jnp.arange(8)].add(rows)
""",
        """
def program(table, start, rows):
    places = start.sum() + jnp.arange(8)
    return table.at[places].add(rows, indices_are_sorted=True, unique_indices=True)
""",
    ),
    'gather with `mode="promise_in_bounds"`': Example(
        ("f32[4096,128]", "s32[1024]"),
        """
def program(table, places):
    return table[places] * 2
""",
        """
def program(table, places):
    return table.at[places].get(mode="promise_in_bounds") * 2
""",
    ),
    "users of a concatenation split into its parts": Example(
        ("f32[1024,512]", "f32[1024,512]"),
        """
def program(some, others):
    joined = jnp.concatenate([jnp.tanh(some), jnp.exp(others)], axis=1)
    return jnp.cos(joined), jnp.sin(joined) * 2
""",
        """
def program(some, others):
    some, others = jnp.tanh(some), jnp.exp(others)
    return (
        jnp.concatenate([jnp.cos(some), jnp.cos(others)], axis=1),
        jnp.concatenate([jnp.sin(some) * 2, jnp.sin(others) * 2], axis=1),
    )
""",
    ),
    "a concatenation multiplied part by part": Example(
        ("f32[1024,512]", "f32[1024,512]", "f32[1024,256]"),
        """
def program(some, others, weights):
    return jnp.concatenate([jnp.tanh(some), jnp.exp(others)], axis=1) @ weights
""",
        """
def program(some, others, weights):
    return jnp.tanh(some) @ weights[:512] + jnp.exp(others) @ weights[512:]
""",
    ),
    "heads by `einsum` instead of reshape and transpose": Example(
        ("f32[1024,512]", "f32[512,512]", "f32[512,512]"),
        """
def program(values, queries, keys):
    queries = (values @ queries).reshape(8, 128, 8, 64).transpose(0, 2, 1, 3)
    keys = (values @ keys).reshape(8, 128, 8, 64).transpose(0, 2, 1, 3)
    return queries @ keys.swapaxes(-1, -2)
""",
        """
def program(values, queries, keys):
    values = values.reshape(8, 128, 512)
    queries = jnp.einsum("btd,dhk->bhtk", values, queries.reshape(512, 8, 64))
    keys = jnp.einsum("btd,dhk->bhtk", values, keys.reshape(512, 8, 64))
    return jnp.einsum("bhtk,bhsk->bhts", queries, keys)
""",
    ),
    "convolution with channels last": Example(
        ("f32[8,32,32,32]", "f32[64,32,3,3]"),
        """
def program(images, kernel):
    layout = ("NCHW", "OIHW", "NCHW")
    return jax.nn.relu(
        lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=layout)
    )
""",
        """
def program(images, kernel):
    layout = ("NHWC", "HWIO", "NHWC")
    images, kernel = images.transpose(0, 2, 3, 1), kernel.transpose(2, 3, 1, 0)
    found = lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=layout)
    return jax.nn.relu(found).transpose(0, 3, 1, 2)
""",
    ),
    "attention by `jax.nn.dot_product_attention`": Example(
        ("bf16[2,512,8,64]", "bf16[2,512,8,64]", "bf16[2,512,8,64]"),
        """
def program(queries, keys, values):
    scores = jnp.einsum("bthd,bshd->bhts", queries, keys) / 8
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), values)
""",
        """
def program(queries, keys, values):
    return jax.nn.dot_product_attention(queries, keys, values)
""",
    ),
    "attention that divides behind the product": Example(
        ("f32[2,512,8,64]", "f32[2,512,8,64]", "f32[2,512,8,64]"),
        """
def program(queries, keys, values):
    scores = jnp.einsum("bthd,bshd->bhts", queries, keys) / 8
    return jnp.einsum("bhts,bshd->bthd", jax.nn.softmax(scores), values)
""",
        """
def program(queries, keys, values):
    scores = jnp.einsum("bthd,bshd->bhts", queries, keys) / 8
    grown = jnp.exp(scores - scores.max(axis=-1, keepdims=True))
    totals = grown.sum(axis=-1).transpose(0, 2, 1)[..., None]
    return jnp.einsum("bhts,bshd->bthd", grown, values) / totals
""",
    ),
    "one-pass variance over the last dimension": Example(
        ("f32[2048,1024]",),
        """
def program(values):
    mean = values.mean(axis=1, keepdims=True)
    variance = values.var(axis=1, keepdims=True)
    return (values - mean) / jnp.sqrt(variance + 1e-5)
""",
        """
def program(values):
    mean = values.mean(axis=1, keepdims=True)
    variance = jnp.maximum((values * values).mean(axis=1, keepdims=True) - mean * mean, 0)
    return (values - mean) / jnp.sqrt(variance + 1e-5)
""",
    ),
    "a barrier to keep a value that three read": Example(
        ("f32[1024,1024]", "f32[1024,64]"),
        """
def program(values, weights):
    found = jnp.exp(jnp.tanh(values) * jnp.sin(values))
    return found.sum(axis=0), found.sum(axis=1), found @ weights
""",
        """
def program(values, weights):
    found = lax.optimization_barrier(jnp.exp(jnp.tanh(values) * jnp.sin(values)))
    return found.sum(axis=0), found.sum(axis=1), found @ weights
""",
    ),
    "a barrier to keep a row that is broadcast": Example(
        ("f32[4096,1024]", "f32[1024]"),
        """
def program(values, row):
    return values * jnp.tanh(row), values + jnp.tanh(row)
""",
        """
def program(values, row):
    row = lax.optimization_barrier(jnp.tanh(row))
    return values * row, values + row
""",
    ),
    "random numbers drawn by one call": Example(
        ("u32[2]",),
        """
def program(key):
    return [jax.random.normal(each, (256, 256)) for each in jax.random.split(key, 4)]
""",
        """
def program(key):
    return list(jax.random.normal(key, (4, 256, 256)))
""",
    ),
    "random numbers by `rbg`": Example(
        ("u32[2]", "f32[1024,1024]"),
        """
def program(key, values):
    return jnp.where(jax.random.bernoulli(key, 0.9, values.shape), values, 0)
""",
        """
def program(key, values):
    key = jax.random.wrap_key_data(jnp.concatenate([key, key]), impl="rbg")
    return jnp.where(jax.random.bernoulli(key, 0.9, values.shape), values, 0)
""",
    ),
    "two masks of one draw of 32 bits": Example(
        ("u32[2]", "f32[1024,1024]"),
        """
def program(key, values):
    first, second = jax.random.split(key)
    some = jax.random.bernoulli(first, 0.9, values.shape)
    others = jax.random.bernoulli(second, 0.9, values.shape)
    return jnp.where(some, values, 0), jnp.where(others, jnp.tanh(values), 0)
""",
        """
def program(key, values):
    bits = jax.random.bits(key, values.shape, "uint32")
    some, others = (bits >> 16) < 58982, (bits & 0xFFFF) < 58982
    return jnp.where(some, values, 0), jnp.where(others, jnp.tanh(values), 0)
""",
    ),
    "products with one operand joined": Example(
        ("f32[256,512]", "f32[512,128]", "f32[512,128]", "f32[512,128]"),
        """
def program(values, some, others, more):
    return values @ some, values @ others, values @ more
""",
        """
def program(values, some, others, more):
    return tuple(jnp.split(values @ jnp.concatenate([some, others, more], axis=1), 3, axis=1))
""",
    ),
    "sums over rows and columns as products": Example(
        ("f32[2048,2048]",),
        """
def program(values):
    grown = jnp.exp(values)
    return grown.sum(axis=0), grown.sum(axis=1)
""",
        """
def program(values):
    grown = jnp.exp(values)
    return jnp.ones(2048) @ grown, grown @ jnp.ones(2048)
""",
    ),
    "`top_k` as repeated `argmax`": Example(
        ("f32[1024,4096]",),
        """
def program(values):
    return lax.top_k(values, 2)[1]
""",
        """
def program(values):
    first = jnp.argmax(values, axis=1)
    is_first = jnp.arange(values.shape[1]) == first[:, None]
    second = jnp.argmax(jnp.where(is_first, -jnp.inf, values), axis=1)
    return jnp.stack([first, second], axis=1)
""",
    ),
    "a recurrence as `associative_scan`": Example(
        ("f32[256]", "f32[256,256]"),
        """
def program(start, values):
    return lax.scan(lambda kept, value: (kept * 0.9 + value, kept), start, values)[0]
""",
        """
def program(start, values):
    def join(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    factors, sums = lax.associative_scan(join, (jnp.full(values.shape, 0.9), values))
    return factors[-1] * start + sums[-1]
""",
    ),
}
