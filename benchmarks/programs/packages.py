"""Programs of packages: their models, simulators, samplers, and optimizers, at common sizes.

Nothing here defines a layer of its own. Needs the packages of packages.txt. A program imports its
package when it is asked for.
"""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

os.environ["KERAS_BACKEND"] = "jax"
KEY = jax.ShapeDtypeStruct((2,), "uint32")


def shape(*dimensions, dtype="float32"):
    return jax.ShapeDtypeStruct(dimensions, dtype)


def tokens(*dimensions):
    return shape(*dimensions, dtype="int32")


def training_step(loss, weights, *batch):
    """A step of Adam by optax that donates weights and state."""
    import optax

    optimizer = optax.adamw(1e-3)

    def step(weights, state, *batch):
        value, gradient = jax.value_and_grad(loss)(weights, *batch)
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, value

    state = jax.eval_shape(optimizer.init, weights)
    return step, (weights, state, *batch), {"donate": (0, 1)}


# Transformers of the package of this name, and a diffusion pipeline


def language_model(kind, config):
    model = kind(config, _do_init=False)
    return model, model.params_shape_tree


def next_token_loss(model):
    def loss(weights, ids):
        import optax

        logits = model(ids, params=weights, train=False).logits
        labels = jax.nn.one_hot(ids[:, 1:], logits.shape[-1])
        return optax.softmax_cross_entropy(logits[:, :-1], labels).mean()

    return loss


def gpt2_train():
    from transformers import FlaxGPT2LMHeadModel, GPT2Config

    model, weights = language_model(FlaxGPT2LMHeadModel, GPT2Config())
    return training_step(next_token_loss(model), weights, tokens(8, 512))


def llama_decode():
    from transformers import FlaxLlamaForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=32
    )
    model = FlaxLlamaForCausalLM(config, _do_init=False, dtype=jnp.bfloat16)

    def generate(weights, prompt, key):
        options = {"max_length": 512, "do_sample": True, "top_k": 40, "pad_token_id": 0}
        return model.generate(prompt, params=weights, prng_key=key, trace=False, **options)

    return generate, (model.params_shape_tree, tokens(4, 64), KEY)


def t5_beam():
    from transformers import FlaxT5ForConditionalGeneration, T5Config

    config = T5Config(decoder_start_token_id=0)
    model = FlaxT5ForConditionalGeneration(config, _do_init=False)

    def translate(weights, source):
        options = {"max_length": 64, "num_beams": 4, "trace": False}
        return model.generate(source, params=weights, **options).sequences

    return translate, (model.params_shape_tree, tokens(8, 64))


def whisper_train():
    from transformers import FlaxWhisperForConditionalGeneration, WhisperConfig

    model = FlaxWhisperForConditionalGeneration(WhisperConfig(), _do_init=False)

    def loss(weights, sound, ids):
        import optax

        logits = model(sound, ids, params=weights, train=False).logits
        labels = ids[:, 1:]
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], labels).mean()

    return training_step(loss, model.params_shape_tree, shape(8, 80, 3000), tokens(8, 128))


def clip_forward():
    from transformers import CLIPConfig, FlaxCLIPModel

    model = FlaxCLIPModel(CLIPConfig(), _do_init=False)

    def similarity(weights, ids, images):
        return model(ids, images, params=weights).logits_per_image

    return similarity, (model.params_shape_tree, tokens(64, 77), shape(64, 3, 224, 224))


def stable_diffusion():
    from diffusers import FlaxDDIMScheduler, FlaxUNet2DConditionModel

    network = FlaxUNet2DConditionModel(sample_size=32, dtype=jnp.bfloat16)
    scheduler = FlaxDDIMScheduler()
    weights = jax.eval_shape(network.init_weights, jax.random.key(0))

    def sample(weights, latent, context):
        state = scheduler.set_timesteps(scheduler.create_state(), 20, latent.shape)

        def step(number, carry):
            latent, state = carry
            time = state.timesteps[number]
            times = jnp.broadcast_to(time, (latent.shape[0],))
            noise = network.apply({"params": weights}, latent, times, context).sample
            return scheduler.step(state, noise, time, latent)[:2]

        return jax.lax.fori_loop(0, 20, step, (latent, state))[0]

    return sample, (weights, shape(4, 4, 32, 32), shape(4, 77, 1280))


# Keras, Haiku, and the trunk of AlphaFold


def keras_model(name):
    import keras

    return getattr(keras.applications, name)(weights=None, include_top=True, classes=1000)


def variables_of(model):
    return [
        [shape(*value.shape, dtype=value.dtype) for value in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    ]


def keras_train(name):
    model = keras_model(name)
    trainable, fixed = variables_of(model)

    def loss(trainable, fixed, images, labels):
        scores, _ = model.stateless_call(trainable, fixed, images, training=True)
        return -jnp.log(jnp.take_along_axis(scores, labels[:, None], 1) + 1e-6).mean()

    _, height, width, _ = model.input_shape
    return training_step(loss, trainable, fixed, shape(16, height, width, 3), tokens(16))


def efficientnet_forward():
    model = keras_model("EfficientNetV2B0")
    trainable, fixed = variables_of(model)

    def forward(trainable, fixed, images):
        return model.stateless_call(trainable, fixed, images, training=False)[0]

    return forward, (trainable, fixed, shape(32, 224, 224, 3))


def haiku_resnet_train():
    import haiku
    import optax

    def forward(images):
        return haiku.nets.ResNet50(1000)(images, is_training=True)

    model = haiku.transform_with_state(forward)
    images = shape(32, 224, 224, 3)
    weights, statistics = jax.eval_shape(model.init, KEY, images)

    def loss(weights, statistics, images, labels):
        logits, _ = model.apply(weights, statistics, None, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return training_step(loss, weights, statistics, images, tokens(32))


def alphafold_trunk():
    import haiku
    from alphafold.model import config, modules

    options = config.model_config("model_1_ptm")
    trunk = options.model.embeddings_and_evoformer.evoformer

    def forward(sequences, pairs):
        masks = {"msa": jnp.ones(sequences.shape[:2]), "pair": jnp.ones(pairs.shape[:2])}
        activations = {"msa": sequences, "pair": pairs}
        for number in range(4):
            block = modules.EvoformerIteration(
                trunk, options.model.global_config, is_extra_msa=False, name=f"block_{number}"
            )
            activations = block(activations, masks, safe_key=None)
        return activations["pair"]

    model = haiku.transform(forward)
    arguments = shape(128, 128, 256), shape(128, 128, 128)
    weights = jax.eval_shape(model.init, KEY, *arguments)
    return model.apply, (weights, KEY, *arguments)


# Simulation, sampling, solvers, graphs


def brax_unroll():
    from brax import envs
    from brax.training import acting
    from brax.training.agents.ppo import networks

    environment = envs.training.wrap(envs.get_environment("ant"), episode_length=1000)
    policy = networks.make_ppo_networks(environment.observation_size, environment.action_size)
    weights = jax.eval_shape(policy.policy_network.init, jax.random.PRNGKey(0))
    state = jax.eval_shape(environment.reset, shape(256, 2, dtype="uint32"))

    def unroll(weights, state, key):
        act = networks.make_inference_fn(policy)((None, weights))
        return acting.generate_unroll(environment, state, act, key, 8)

    return unroll, (weights, state, KEY)


def mjx_step():
    import mujoco
    from etils import epath
    from mujoco import mjx

    path = epath.resource_path("mujoco.mjx") / "test_data/humanoid/humanoid.xml"
    model = mjx.put_model(mujoco.MjModel.from_xml_path(str(path)))
    data = jax.eval_shape(lambda: mjx.make_data(model))
    batch = jax.tree.map(lambda leaf: shape(64, *leaf.shape, dtype=leaf.dtype), data)
    return jax.vmap(lambda data: mjx.step(model, data)), (batch,)


def numpyro_nuts():
    import numpyro
    from numpyro.distributions import HalfCauchy, Normal
    from numpyro.infer import NUTS

    def schools(errors, outcomes):
        mean = numpyro.sample("mean", Normal(0, 5))
        deviation = numpyro.sample("deviation", HalfCauchy(5))
        with numpyro.plate("schools", errors.shape[0]):
            effect = numpyro.sample("effect", Normal(mean, deviation))
            numpyro.sample("outcome", Normal(effect, errors), obs=outcomes)

    def sample(errors, outcomes, key):
        kernel = NUTS(schools)
        state = kernel.init(key, 100, None, (errors, outcomes), {})
        step = jax.lax.scan(
            lambda state, _: (kernel.sample(state, (errors, outcomes), {}), state.z),
            state,
            None,
            200,
        )
        return step[1]

    return sample, (shape(1024), shape(1024), KEY)


def diffrax_train():
    import diffrax
    import equinox

    network = equinox.nn.MLP(16, 16, 128, 3, key=jax.random.key(0))
    weights, structure = equinox.partition(network, equinox.is_array)
    weights = jax.tree.map(lambda leaf: shape(*leaf.shape), weights)

    def loss(weights, start, targets):
        field = equinox.combine(weights, structure)
        times = jnp.linspace(0.0, 1.0, targets.shape[1])

        def solve(start):
            return diffrax.diffeqsolve(
                diffrax.ODETerm(lambda time, value, _: field(value)),
                diffrax.Tsit5(),
                0.0,
                1.0,
                0.1,
                start,
                saveat=diffrax.SaveAt(ts=times),
                stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-6),
            ).ys

        return jnp.square(jax.vmap(solve)(start) - targets).mean()

    return training_step(loss, weights, shape(256, 16), shape(256, 20, 16))


def jraph_train():
    import haiku
    import jraph

    def forward(graph):
        def update(width):
            return jraph.concatenated_args(haiku.nets.MLP([width, width]))

        for _ in range(4):
            graph = jraph.GraphNetwork(update(128), update(128), update(128))(graph)
        return graph.globals

    nodes, edges, graphs = 4096, 16384, 64
    graph = jraph.GraphsTuple(
        shape(nodes, 64),
        shape(edges, 16),
        tokens(edges),
        tokens(edges),
        shape(graphs, 8),
        tokens(graphs),
        tokens(graphs),
    )
    model = haiku.without_apply_rng(haiku.transform(forward))
    weights = jax.eval_shape(model.init, KEY, graph)

    def loss(weights, graph, targets):
        return jnp.square(model.apply(weights, graph) - targets).mean()

    return training_step(loss, weights, graph, shape(graphs, 128))


def equinox_train():
    import equinox

    layers = [
        equinox.nn.MultiheadAttention(8, 512, key=jax.random.key(number)) for number in range(6)
    ]
    norms = [equinox.nn.LayerNorm(512) for _ in range(12)]
    networks = [
        equinox.nn.MLP(512, 512, 2048, 1, key=jax.random.key(number)) for number in range(6)
    ]
    weights, structure = equinox.partition((layers, norms, networks), equinox.is_array)
    weights = jax.tree.map(lambda leaf: shape(*leaf.shape), weights)

    def loss(weights, sequences, targets):
        layers, norms, networks = equinox.combine(weights, structure)

        def forward(hidden):
            for number, (attention, network) in enumerate(zip(layers, networks, strict=True)):
                normal = jax.vmap(norms[2 * number])(hidden)
                hidden += attention(normal, normal, normal)
                hidden += jax.vmap(network)(jax.vmap(norms[2 * number + 1])(hidden))
            return hidden

        return jnp.square(jax.vmap(forward)(sequences) - targets).mean()

    return training_step(loss, weights, shape(16, 256, 512), shape(16, 256, 512))


def gymnax_rollout():
    import gymnax

    environment, options = gymnax.make("Asterix-MinAtar")

    def rollout(key):
        def step(carry, key):
            state, _ = carry
            action = environment.action_space(options).sample(key)
            observation, state, reward, _, _ = environment.step(key, state, action, options)
            return (state, observation), reward

        def play(key):
            observation, state = environment.reset(key, options)
            return jax.lax.scan(step, (state, observation), jax.random.split(key, 128))[1]

        return jax.vmap(play)(jax.random.split(key, 512))

    return rollout, (KEY,)


def lbfgs_fit():
    import jaxopt

    def loss(weights, features, labels):
        return jaxopt.objective.multiclass_logreg(weights, (features, labels))

    def fit(weights, features, labels):
        solver = jaxopt.LBFGS(loss, maxiter=50)
        return solver.run(weights, features, labels).params

    return fit, (shape(512, 10), shape(8192, 512), tokens(8192))


BUILDERS: dict[str, Callable[[], Any]] = {
    "gpt2_train": gpt2_train,
    "llama_decode": llama_decode,
    "t5_beam": t5_beam,
    "whisper_train": whisper_train,
    "clip_forward": clip_forward,
    "stable_diffusion": stable_diffusion,
    "keras_convnext_train": lambda: keras_train("ConvNeXtTiny"),
    "keras_efficientnet": efficientnet_forward,
    "haiku_resnet_train": haiku_resnet_train,
    "alphafold_trunk": alphafold_trunk,
    "brax_unroll": brax_unroll,
    "mjx_step": mjx_step,
    "numpyro_nuts": numpyro_nuts,
    "diffrax_train": diffrax_train,
    "jraph_train": jraph_train,
    "equinox_train": equinox_train,
    "gymnax_rollout": gymnax_rollout,
    "lbfgs_fit": lbfgs_fit,
}


class Programs(dict[str, Any]):
    """The programs by name, made when they are asked for."""

    def __missing__(self, name: str) -> Any:
        return BUILDERS[name]()


programs = Programs()
