"""Training of VITON-HD's three networks: appendix A.3.

Each learns to reconstruct the person in the image from the garment worn, with the true parse S instead of the predicted
one (4.1). So none depends on another, except the ALIAS generator, which gets garments warped by the current geometric
matching module. They can be trained in one run or in three.
"""
import tensorflow as tf
from tensorflow import keras

from keras_models import ModelError
from keras_models.core import optimizers as rules
from keras_models.core import resizing
from keras_models.core.losses import row_means
from keras_models.viton import adversary, alias, chain, geometric_matching, geometry, perceptual, segmentation
from keras_models.viton.chain import CLASSES, UPPER, Config, part

FEATURES = 'features'


def adversarial(config: Config) -> list[str]:
    """Return the trained networks that have a discriminator."""
    return [name for name in config.trainable_networks if getattr(part(config, name), 'lambda_cGAN', 0)]


def discriminators(config: Config) -> dict[str, keras.Model]:
    """Return the discriminators: of S given X (eq. 10), and of the image given S_div (eq. 14)."""
    found, learning = {}, adversarial(config)
    if 'segmentation' in learning:
        own = part(config, 'segmentation')
        X = sum(segmentation.CHANNELS[name] for name in _shown(own))
        found['segmentation_discriminator'] = adversary.build('segmentation_discriminator', X + CLASSES, own.size,
                                                              width=own.width)
    if 'alias' in learning:
        own, S_div = part(config, 'alias'), len(alias.GROUPS) + 1
        found['alias_discriminator'] = adversary.build('alias_discriminator', S_div + 3, own.size, spectral=True,
                                                       width=own.width)
    return found


def optimizers(config: Config) -> dict[str, keras.optimizers.Optimizer]:
    """Return Adam for everything that is trained, with the rates of A.3."""
    found = {}
    for name in config.trainable_networks:
        own = part(config, name)
        found[name] = _adam(own, own.learning_rate)
        if name in adversarial(config):
            found[f'{name}_discriminator'] = _adam(own, own.discriminator_rate)
    return found


def _adam(own, rate: float) -> keras.optimizers.Optimizer:
    schedule = rules.Cosine(rate, own.decay_updates) if own.decay_updates else rate
    return rules.Adam(schedule, own.beta_1, own.beta_2, epsilon=1e-8)


def files(config: Config) -> list[str]:
    """Return the files training reads besides the data: published weights.

    Raises:
      ModelError: the perceptual loss has a weight, but there are no files.
    """
    if 'alias' not in config.trainable_networks or not part(config, 'alias').lambda_percept:
        return []
    if not config.features:
        raise ModelError('model.features: the perceptual loss (eq. 16) needs weights of VGG-19. Give torchvision\'s '
                         'vgg19-dcbb9e9d.pth or a run of vgg_e_imagenet, or disable the loss with '
                         '--set model.alias.lambda_percept=0.')
    return [config.features]


def frozen(config: Config) -> dict[str, keras.Model]:
    """Return the frozen networks of the losses: F of eq. (16), if it is used."""
    return {FEATURES: perceptual.load(config.features)} if files(config) else {}


def notes(config: Config) -> list[str]:
    """Return notes on the losses for readers of a run's report."""
    said = [f'{name} was trained without a discriminator (model.{name}.lambda_cGAN)'
            for name in config.trainable_networks if getattr(part(config, name), 'lambda_cGAN', 1) == 0]
    if 'geometric_matching' in config.trainable_networks and (weight := part(config, 'geometric_matching').lambda_mask):
        said.append(f'{weight:g} times the difference of the warped mask to the true garment\'s was added to eq. (11) '
                    '(model.geometric_matching.lambda_mask)')
    if 'alias' not in config.trainable_networks:
        return said
    own = part(config, 'alias')
    if not own.lambda_percept:
        said.append('the perceptual loss of eq. (16) was off (model.alias.lambda_percept)')
    if own.lambda_L1:
        said.append(f'{own.lambda_L1:g} times the mean absolute difference to the true picture was added to eq. (13) '
                    '(model.alias.lambda_L1)')
    return said


def loss_fn(nets: dict[str, keras.Model], batch: dict, seed, training: bool, config: Config):
    """Return the losses of all trained networks from one forward pass; each updates only its own network.

    Args:
      batch: as made by `data_prep.tryon`, at the model's size; rows with `real` 0 are ignored.

    Returns:
      Losses by network and their parts, each name -> (sum, number of rows).
    """
    S = tf.one_hot(batch['parse'], CLASSES)
    losses: dict[str, tf.Tensor] = {}
    parts: dict[str, tf.Tensor] = {}
    if 'segmentation' in config.trainable_networks:
        found, of = _segmentation(nets, batch, S, seed, training, config)
        losses, parts = losses | found, parts | of
    if {'geometric_matching', 'alias'} & {*config.trainable_networks}:
        learns = 'geometric_matching' in config.trainable_networks
        inputs = chain.matching_inputs(part(config, 'geometric_matching'), batch, S[..., UPPER:UPPER + 1])
        theta = nets['geometric_matching'](inputs, training=training and learns)  # [B, 2, 5, 5]
        if learns:
            found, of = _geometric_matching(batch, S, inputs['cloth'], theta, config)
            losses, parts = losses | found, parts | of
        if 'alias' in config.trainable_networks:
            found, of = _alias(nets, batch, S, theta, seed, training, config)
            losses, parts = losses | found, parts | of
    rows = tf.reduce_sum(batch['real'])

    def summed(values):  # [B] each; padded rows may be NaN
        return {name: (tf.reduce_sum(tf.where(batch['real'] > 0, tf.cast(value, tf.float32), 0.0)), rows)
                for name, value in values.items()}
    return summed(losses), summed(parts)


def _shown(own: segmentation.Config) -> list[str]:
    """Return X of eq. (10): the segmentation generator's inputs, without noise."""
    return [name for name in own.inputs if name != 'noise']


def _segmentation(nets, batch, S, seed, training, config):
    """Return L_S = L_cGAN + lambda_CE L_CE (eq. 8), L_cGAN by LSGAN."""
    own = part(config, 'segmentation')
    inputs = chain.segmentation_inputs(own, batch, seed)
    logits = tf.cast(nets['segmentation']({**inputs, 'seed': seed}, training=training), tf.float32)
    S = (resizing.bilinear if own.interpolate_parse else resizing.nearest)(S, *own.size)
    L_CE = row_means(tf.nn.softmax_cross_entropy_with_logits(S, logits))  # (9); from logits for either output
    right = row_means(tf.cast(tf.argmax(logits, -1) == tf.argmax(S, -1), tf.float32))
    parts = {'L_CE': L_CE, 'accuracy': right}
    if not own.lambda_cGAN:
        return {'segmentation': own.lambda_CE * L_CE}, parts
    X = tf.concat([inputs[name] for name in _shown(own)], -1)
    D = nets['segmentation_discriminator']
    fake = D(tf.concat([X, segmentation.probabilities(logits, own)], -1), training=training)
    real = D(tf.concat([X, S], -1), training=False)  # with the same weights, see `layers.Convolution`
    L_cGAN, L_D = adversary.lsgan(real, fake)
    return ({'segmentation': own.lambda_cGAN * L_cGAN + own.lambda_CE * L_CE, 'segmentation_discriminator': L_D},
            parts | {'L_cGAN/segmentation': L_cGAN})


def _geometric_matching(batch, S, cloth, theta, config):
    """Return L_warp = |I_c - W(c, theta)| + lambda_const L_const (eq. 11), and `mask_loss` if it has a weight."""
    own = part(config, 'geometric_matching')
    spline = geometric_matching.spline(own)
    grid = spline.grid(theta, *own.size)
    W = geometry.sample(cloth, grid)
    worn = S[..., UPPER:UPPER + 1]
    I_c = resizing.nearest(batch['image'] * worn + (1 - worn), *own.size)  # on white, like photographs of garments
    L_1, L_const = row_means(tf.abs(I_c - W)), geometric_matching.second_order(theta, spline)
    loss, parts = L_1 + own.lambda_const * L_const, {'L_warp': L_1, 'L_const': L_const}
    if own.lambda_mask:
        mask = geometry.sample(resizing.nearest(batch['cloth_mask'], *own.size), grid)
        parts['L_mask'] = geometric_matching.mask_loss(mask, resizing.nearest(worn, *own.size))
        loss += own.lambda_mask * parts['L_mask']
    return {'geometric_matching': loss}, parts


def _alias(nets, batch, S, theta, seed, training, config):
    """Return L_I = L_cGAN + lambda_FM L_FM + lambda_percept L_percept (eq. 13), L_cGAN by the hinge loss."""
    own = part(config, 'alias')
    inputs = chain.alias_inputs(batch, S, *chain.warped(config, batch, theta))
    true, made = batch['image'], nets['alias']({**inputs, 'seed': seed}, training=training)
    L_1 = row_means(tf.abs(true - made))
    losses, parts, L_I = {}, {'L_1': L_1}, own.lambda_L1 * L_1
    if own.lambda_cGAN:
        D = nets['alias_discriminator']
        fake = D(tf.concat([inputs['S_div'], made], -1), training=training)
        real = D(tf.concat([inputs['S_div'], true], -1), training=False)
        L_cGAN, losses['alias_discriminator'] = adversary.hinge(real, fake)
        L_FM = adversary.feature_matching(real, fake)
        L_I += own.lambda_cGAN * L_cGAN + own.lambda_FM * L_FM
        parts |= {'L_cGAN/alias': L_cGAN, 'L_FM': L_FM}
    if FEATURES in nets:
        parts['L_percept'] = perceptual.loss(nets[FEATURES], made, true, own.feature_weights)
        L_I += own.lambda_percept * parts['L_percept']
    return {'alias': L_I, **losses}, parts


def pictures(nets: dict[str, keras.Model], batch: dict, config: Config):
    """Draw the networks' outputs for a batch side by side: parse, warped garment and image, as far as they exist.

    The true image comes last.

    Returns:
      uint8 [B, H, several W, 3].
    """
    seed, S = tf.constant([1, 0]), tf.one_hot(batch['parse'], CLASSES)
    shown = []
    if 'segmentation' in nets:
        parse = chain.segment(nets['segmentation'], config, batch, seed)
        shown.append(tf.gather(chain.COLOURS / 127.5 - 1, tf.argmax(parse, -1)))
    if 'geometric_matching' in nets:
        cloth, mask = chain.warp(nets['geometric_matching'], config, batch, S[..., UPPER:UPPER + 1])
        shown.append(cloth)
        if 'alias' in nets:
            shown.append(chain.synthesise(nets['alias'], batch, S, cloth, mask, seed))
    both = tf.concat([tf.cast(picture, tf.float32) for picture in (*shown, batch['image'])], 2)
    return chain.pixels(both)
