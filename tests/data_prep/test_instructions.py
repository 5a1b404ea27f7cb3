"""Instructions and responses: tables with named columns, and Korean text reproduced to the byte."""
import csv

import pytest

from data_prep import UserError, wmt
from data_prep.core import records, text_files
from data_prep.text import job as text_job
from data_prep.text import subwords
from pipelines import export
from pipelines.core import config, pipeline, stage
from pipelines.serving import saved_model

# A comma, quotes, two blanks, a line end, and characters that NFKC would change: ㎏, ①, half of a full width.
ROWS = [('배송일을 물어봄', '제 책은 언제 오나요?', '내일, 늦어도 모레 도착합니다.'),
        ('무게를 물어봄', '', '상자는 3㎏이고  봉투는 0.2㎏입니다.'),
        ('방법을 설명함', '의자를 어떻게 조립하나요, 혼자서?', '① 다리를 끼웁니다.\n② "딸깍" 소리를 확인합니다.'),
        ('인사함', '안녕하세요', '네, 안녕하세요！무엇을 도와드릴까요?')]
COLUMNS = {'source': '{Instruction} {Input}', 'target': '{Response}'}


@pytest.fixture
def table(tmp_path):
    path = tmp_path / 'table.csv'
    with open(path, 'w', encoding='utf-8-sig', newline='') as file:
        csv.writer(file).writerows([('Instruction', 'Input', 'Response'), *ROWS])
    return path


def sources():
    return [f'{instruction} {given}'.strip() for instruction, given, _ in ROWS]


def settings(table, **values):
    return wmt.Config(**{'folder': str(table.parent), 'train': [table.name], 'validation': [table.name],
                         'test': [table.name], 'header': True, 'columns': COLUMNS, 'vocab_size': 370,
                         'normalization': 'identity', 'byte_fallback': True, **values})


def read(table, header=True, columns=COLUMNS, block=1):
    [source] = text_files.sources('train', '', [str(table)])
    blocks = text_files.scan(source, text_files.unpack(source, str(table.parent)), block, header, columns)
    return [record for block in blocks for record in text_files.read(block, columns)]


@pytest.mark.parametrize('block', [1, 3, 9])
def test_columns_are_named_whatever_the_blocks(table, block):
    assert [record.columns for record in read(table, block=block)] == [
        (source, row[2]) for source, row in zip(sources(), ROWS)]
    other = {'source': 'Q: {Input}', 'target': '{Instruction}', 'kind': '{Instruction}/{Response}'}
    first = read(table, columns=other, block=block)[0]
    assert first.columns == (f'Q: {ROWS[0][1]}', ROWS[0][0], f'{ROWS[0][0]}/{ROWS[0][2]}')
    assert read(table, columns={}, block=block)[0].columns == ROWS[0]  # as they come


def test_tabs_and_braces_in_the_text(tmp_path):
    (tmp_path / 'a.tsv').write_text('ask\tmore {x}\tsay\n{ask}\t{0}\t{say}\n\tonly\n')
    good, short = read(tmp_path / 'a.tsv', columns={'source': '{ask}|{ask}', 'target': '{say}'})
    assert good.columns == ('{ask}|{ask}', '{say}')  # what a cell holds is text
    assert (short.columns, short.reason, short.line) == ((), '2 columns, but the header names 3', 3)


@pytest.mark.parametrize('kind, size', [('bpe', 370), ('unigram', 339)])
def test_korean_survives_to_the_byte(table, tmp_path, kind, size):
    out = tmp_path / 'out'
    out.mkdir()
    text_job.run(settings(table, subword_kind=kind, vocab_size=size), str(out), [])
    part, tokenizer = records.open_split(str(out), 'train'), wmt.assets(str(out))
    asked, columns = wmt.examples(part.read(range(len(part))))
    assert (asked, columns['target']) == (sources(), [row[2] for row in ROWS])
    unseen = ['뷁 𝄞 ﬁ', '앞과  뒤 ', '\t탭']
    for texts in (columns['target'], asked, unseen):
        back = tokenizer.detokenize(tokenizer.tokenize(texts).to_tensor(subwords.PAD)).numpy()
        assert list(back) == [text.encode() for text in texts]


@pytest.mark.parametrize('values, message', [
    ({'header': False}, 'columns needs header: true'),
    ({'columns': {'source': '{Input}'}}, r'templates of source and target \(and kind\), .*; columns names source$'),
    ({'columns': {**COLUMNS, 'answer': '{x}'}}, 'columns names answer, source, target$'),
    ({'columns': {**COLUMNS, 'target': 'Response'}}, "columns.target 'Response' names no column in braces")])
def test_columns_that_cannot_be_meant(table, values, message):
    with pytest.raises(ValueError, match=message):
        settings(table, **values)


def test_columns_that_are_not_there(table, tmp_path):
    for path, columns, message in (
            (table, {**COLUMNS, 'target': '{Answer}'}, "has no column 'Answer'; it has Instruction, Input, Response"),
            (tmp_path / 'a.csv', COLUMNS, 'a.csv has no readable header: not UTF-8')):
        (tmp_path / 'a.csv').write_bytes(b'Instruction,\xff\n')
        with pytest.raises(UserError, match=message):
            read(path, columns=columns)
    (tmp_path / 'a.csv').write_text('Instruction,Input,Input,Response\n')
    with pytest.raises(UserError, match="has 2 columns 'Input'; it has Instruction, Input, Input, Response"):
        read(tmp_path / 'a.csv', columns=COLUMNS)


def test_the_shipped_configuration_learns_a_table_by_heart(table, tmp_path):
    """Learn as it ships, but with a smaller net and other rows."""
    resolved = config.load('instructions', [
        f'data.folder={tmp_path}', *(f'data.{split}=[table.csv]' for split in wmt.SPLITS), 'data.vocab_size=370',
        'input.rows=4', 'model.N=1', 'model.d_model=64', 'train.steps=120', 'train.log_every=60',
        'train.checkpoint_every=120', 'train.validate_every=120'])
    made = pipeline.Pipeline(resolved, str(tmp_path / 'runs'), [])
    for name in ('prepare', 'train', 'export'):
        made.run(stage.get(name, resolved))
    model = saved_model.load(f'{made.outputs("export")["model"].uri}/{export.FORMAT}')
    said = [result['answers'][0] for result in saved_model.run(model, sources(), 4, False)]
    assert [text.encode() for text in said] == [row[2].encode() for row in ROWS]
