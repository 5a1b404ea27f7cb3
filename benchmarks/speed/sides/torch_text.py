"""The Transformer in PyTorch: Hugging Face's Marian, and torch's own layers."""
import json
import os
import re

import inputs
import numpy as np
import sentencepiece
import side
import tensorflow as tf
import torch
import transformers
from torch import nn
from torch.nn import functional

MARIAN = {'self_attention': 'self_attn', 'source_attention': 'encoder_attn', 'W_Q': 'q_proj', 'W_K': 'k_proj',
          'W_V': 'v_proj', 'W_O': 'out_proj'}
BATCH = 128  # sentences


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


def marian(weights: dict[str, np.ndarray], h: int, N: int, dropout: float = 0.1) -> transformers.MarianMTModel:
    (V, d), ff = weights['embedding/embeddings'].shape, weights['encoder/0/ffn/W_1/bias'].size
    config = transformers.MarianConfig(
        vocab_size=V, d_model=d, encoder_layers=N, decoder_layers=N, encoder_attention_heads=h,
        decoder_attention_heads=h, encoder_ffn_dim=ff, decoder_ffn_dim=ff, activation_function='relu', dropout=dropout,
        attention_dropout=0.0, activation_dropout=0.0, scale_embedding=True, pad_token_id=inputs.PAD,
        bos_token_id=inputs.BOS, eos_token_id=inputs.EOS, decoder_start_token_id=inputs.BOS, forced_eos_token_id=None,
        max_position_embeddings=1024)
    net = transformers.MarianMTModel(config)
    state = {'model.shared.weight': weights['embedding/embeddings']}
    for name, value in weights.items():
        if name.startswith('embedding'):
            continue
        stack, n, part, layer, *last = name.split('/')
        where = f'model.{stack}.layers.{n}.'
        if layer == 'norm':
            norm = {'ffn': 'final'}.get(part, MARIAN.get(part))
            state[f'{where}{norm}_layer_norm.{"weight" if last == ["gamma"] else "bias"}'] = value
        elif part == 'ffn':
            linear = f'{where}fc{layer[-1]}'
            state[f'{linear}.{"weight" if last == ["kernel"] else "bias"}'] = value.T
        else:
            matrix = value.reshape(d, -1) if layer != 'W_O' else value.reshape(-1, d)
            state[f'{where}{MARIAN[part]}.{MARIAN[layer]}.weight'] = matrix.T
            state[f'{where}{MARIAN[part]}.{MARIAN[layer]}.bias'] = np.zeros(d, np.float32)
    lost, unknown = net.load_state_dict({name: tensor(value) for name, value in state.items()}, strict=False)
    assert not unknown and all(re.search('embed|lm_head|final_logits_bias', name) for name in lost), lost
    for stack in net.model.encoder, net.model.decoder:
        stack.embed_positions.weight.data = tensor(inputs.sinusoids(1024, d))
    for module in net.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-6
    net.tie_weights()
    return net


class Plain(nn.Module):
    """torch's own encoder and decoder layers between a shared embedding and its transpose."""

    def __init__(self, weights: dict[str, np.ndarray], h: int, N: int):
        super().__init__()
        (V, d), ff = weights['embedding/embeddings'].shape, weights['encoder/0/ffn/W_1/bias'].size
        shape = {'d_model': d, 'nhead': h, 'dim_feedforward': ff, 'layer_norm_eps': 1e-6, 'batch_first': True}
        self.embedding, self.dropout = nn.Embedding(V, d), nn.Dropout(0.1)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**shape), N, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), N)
        self.register_buffer('positions', tensor(inputs.sinusoids(1024, d)))
        self.scale = d ** 0.5
        for part in self.modules():  # the paper has dropout where Table 3's P_drop is, and nowhere else
            if isinstance(part, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                part.dropout.p = 0.0
            if isinstance(part, nn.MultiheadAttention):
                part.dropout = 0.0
        self.embedding.weight.data = tensor(weights['embedding/embeddings'])
        for stack, layers in ('encoder', self.encoder.layers), ('decoder', self.decoder.layers):
            for n, layer in enumerate(layers):
                self._fill(layer, f'{stack}/{n}', weights, d)

    @staticmethod
    def _fill(layer, name, weights, d):
        attentions = {'self_attention': layer.self_attn, 'source_attention': getattr(layer, 'multihead_attn', None)}
        for kind, attention in attentions.items():
            if attention is None:
                continue
            q, k, v = (weights[f'{name}/{kind}/W_{which}/kernel'].reshape(d, -1).T for which in 'QKV')
            attention.in_proj_weight.data = tensor(np.concatenate([q, k, v]))
            attention.in_proj_bias.data.zero_()
            attention.out_proj.weight.data = tensor(weights[f'{name}/{kind}/W_O/kernel'].reshape(-1, d).T)
            attention.out_proj.bias.data.zero_()
        for linear, which in (layer.linear1, 'W_1'), (layer.linear2, 'W_2'):
            linear.weight.data = tensor(weights[f'{name}/ffn/{which}/kernel'].T)
            linear.bias.data = tensor(weights[f'{name}/ffn/{which}/bias'])

    def _embed(self, ids):
        return self.dropout(self.embedding(ids) * self.scale + self.positions[:ids.shape[1]])

    def forward(self, input_ids, decoder_input_ids):
        memory = self.encoder(self._embed(input_ids), src_key_padding_mask=input_ids == inputs.PAD)
        causal = nn.Transformer.generate_square_subsequent_mask(decoder_input_ids.shape[1])
        y = self.decoder(self._embed(decoder_input_ids), memory, tgt_mask=causal, tgt_is_causal=True,
                         memory_key_padding_mask=input_ids == inputs.PAD)
        return functional.linear(y, self.embedding.weight)


def step(net: str, batch: int, length: int, precision: str = 'float32') -> side.Work:
    """Return a training step with dropout; what is compared is the loss and gradients without."""
    weights, h, N = inputs.transformer(**inputs.BASE), inputs.BASE['h'], inputs.BASE['N']
    network = {'marian': marian, 'plain': Plain}[net](weights, h, N)
    source, target = (tensor(inputs.sentences(batch, length, inputs.BASE['V'], seed=seed)).long() for seed in (3, 4))
    before = functional.pad(target[:, :-1], (1, 0), value=inputs.BOS)
    optimizer = torch.optim.Adam(network.parameters(), 1e-5, (0.9, 0.98), 1e-9, fused=True)

    def loss():
        with torch.autocast('cpu', torch.bfloat16, enabled=precision == 'bfloat16'):
            if net == 'marian':
                logits = network(input_ids=source, attention_mask=(source != inputs.PAD).long(),
                                 decoder_input_ids=before, use_cache=False).logits
            else:
                logits = network(source, before)
        return functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=inputs.PAD,
                                        label_smoothing=0.1)
    network.eval()
    first = loss()
    first.backward()
    answer = {'loss': np.array(first.item()), 'gradients': np.array(checked(network, net))}
    network.train()

    def once():
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        found.item()
        return batch * length
    return side.Work(answer, once)


def checked(network, net: str) -> list[float]:
    """Norms of the gradients of an early, a late and the shared matrix."""
    if net == 'marian':
        stacks = network.model
        parts = stacks.encoder.layers[0].fc1, stacks.decoder.layers[5].self_attn.v_proj, stacks.shared
        return [part.weight.grad.norm().item() for part in parts]
    packed = network.decoder.layers[5].self_attn.in_proj_weight.grad
    return [grad.norm().item() for grad in (network.encoder.layers[0].linear1.weight.grad, packed[-len(packed) // 3:],
                                            network.embedding.weight.grad)]


def decode(sentences: int, length: int, longer: int) -> side.Work:
    """Hugging Face's beam search of 4 over sentences of one length, to hypotheses of one length."""
    network = marian(inputs.transformer(**inputs.BASE), inputs.BASE['h'], inputs.BASE['N']).eval()
    given = tensor(inputs.sentences(sentences, length, inputs.BASE['V'])).long()

    def search():
        with torch.inference_mode():
            found = network.generate(given, attention_mask=torch.ones_like(given), num_beams=4, length_penalty=0.0,
                                     max_length=length + longer + 1, return_dict_in_generate=True, output_scores=True)
        return found.sequences_scores.numpy()

    def once():
        search()
        return sentences * (length + longer)
    return side.Work({'log probabilities': search()}, once)


def translate(model: str, lines: str) -> side.Work:
    """Lines of text to lines of text by Hugging Face's `generate`: batches of lines of like length."""
    with open(lines, encoding='utf-8') as file:
        given = file.read().splitlines()
    with open(os.path.join(model, 'assets.extra', 'landmark.json'), encoding='utf-8') as file:
        settings = json.load(file)['config']
    pieces = sentencepiece.SentencePieceProcessor(model_file=os.path.join(model, 'assets.extra', 'subwords.model'))
    network = marian(exported(model), settings['model']['h'], settings['model']['N']).eval()
    longest, longer = settings['inference']['max_input_length'], settings['inference']['extra_length']

    def read():
        rows = [ids[:longest - 1] + [inputs.EOS] for ids in pieces.encode(given, num_threads=os.cpu_count())]
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        found: list[str] = [''] * len(rows)
        for start in range(0, len(rows), BATCH):
            batch = order[start:start + BATCH]
            ids = nn.utils.rnn.pad_sequence([torch.tensor(rows[i]) for i in batch], True, inputs.PAD)
            with torch.inference_mode():
                answers = network.generate(ids, attention_mask=(ids != inputs.PAD).long(), num_beams=4,
                                           length_penalty=0.0, max_length=ids.shape[1] + longer + 1)
            for i, text in zip(batch, pieces.decode(answers.tolist())):
                found[i] = text
        return found

    def once():
        read()
        return len(given)
    return side.Work({'lines': np.array(read())}, once)


def exported(model: str) -> dict[str, np.ndarray]:
    """Return the weights in a SavedModel of ours, by their names."""
    reader = tf.train.load_checkpoint(os.path.join(model, 'variables', 'variables'))
    found = {}
    for key in reader.get_variable_to_shape_map():
        if '/transformer/' in key and key.endswith('.ATTRIBUTES/VARIABLE_VALUE'):
            name = key.split('/transformer/')[1].removesuffix('/.ATTRIBUTES/VARIABLE_VALUE')
            found[name.replace(':', '/')] = reader.get_tensor(key)
    return found


if __name__ == '__main__':
    side.serve({'step': step, 'decode': decode, 'translate': translate})
