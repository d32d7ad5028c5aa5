//! Engines that serve a GGUF file as it is stored, with a mixture of formats.

use super::*;
use lemon_model::BlockType;
use std::path::PathBuf;

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// Random numbers of a format: any bytes will do, as long as the 16-bit floats among them are numbers.
fn numbers(kind: u32, stored: BlockType, count: usize, random: &mut Random) -> Vec<u8> {
    if kind == 0 {
        return random.normals(count, 0.1).into_iter().flat_map(|it| (1.0 + it).to_le_bytes()).collect();
    }
    let (values, bytes) = stored.block();
    let mut all: Vec<u8> = (0..count / values * bytes).map(|_| random.next_u64() as u8).collect();
    let spread = if values == 256 { 5e-4 } else { 1e-2 };
    for block in all.chunks_mut(bytes) {
        let floats: &[usize] = match stored {
            BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 => &[0],
            BlockType::Q6K => &[208],
            _ => &[0, 2],
        };
        for at in floats {
            let float = half::f16::from_f32(random.normals(1, spread)[0]);
            block[*at..at + 2].copy_from_slice(&float.to_le_bytes());
        }
    }
    all
}

/// A model of two layers in one file; query, key and value are stored differently, and so are the two halves of the gated
/// unit.
fn file(folder: &Path) -> PathBuf {
    use BlockType::*;
    let (hidden, wide, vocabulary) = (256usize, 512usize, 260usize);
    let mut tensors: Vec<(String, Vec<usize>, u32, BlockType)> = vec![
        ("token_embd.weight".into(), vec![vocabulary, hidden], 13, Q5K),
        ("output_norm.weight".into(), vec![hidden], 0, F32),
        ("output.weight".into(), vec![vocabulary, hidden], 14, Q6K),
    ];
    for layer in 0..2 {
        let formats = [(12, Q4K), (14, Q6K), (8, Q8_0), (2, Q4_0), (3, Q4_1), (6, Q5_0), (7, Q5_1)];
        let mut push = |name: &str, shape: &[usize], at: usize| {
            let (kind, stored) = formats[(at + 3 * layer) % formats.len()];
            tensors.push((format!("blk.{layer}.{name}.weight"), shape.to_vec(), kind, stored));
        };
        push("attn_q", &[hidden, hidden], 0);
        push("attn_k", &[hidden / 2, hidden], 0);
        push("attn_v", &[hidden / 2, hidden], 1);
        push("attn_output", &[hidden, hidden], 2);
        push("ffn_gate", &[wide, hidden], 3);
        push("ffn_up", &[wide, hidden], 0);
        push("ffn_down", &[hidden, wide], 4);
        for name in ["attn_norm", "ffn_norm"] {
            tensors.push((format!("blk.{layer}.{name}.weight"), vec![hidden], 0, F32));
        }
        for (name, outs) in [("attn_q", hidden), ("attn_k", hidden / 2), ("attn_v", hidden / 2)] {
            tensors.push((format!("blk.{layer}.{name}.bias"), vec![outs], 0, F32));
        }
    }
    // One character for each byte; printable ones stand for themselves, the others follow from U+0100 on.
    let mut next = 0x100u32;
    let mut words: Vec<String> = (0..=255u32)
        .map(|byte| {
            let plain = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
            let character = if plain { byte } else { next };
            next += u32::from(!plain);
            char::from_u32(character).unwrap().to_string()
        })
        .collect();
    words.push("<|im_end|>".into());
    let mut metadata: Vec<(String, u32, Vec<u8>)> = Vec::new();
    let mut put = |key: &str, kind: u32, value: Vec<u8>| metadata.push((key.to_owned(), kind, value));
    for (key, value) in
        [("general.architecture", "qwen2"), ("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", "gpt-2")]
    {
        let mut bytes = Vec::new();
        put_text(&mut bytes, value);
        put(key, 8, bytes);
    }
    for (key, value) in [
        ("qwen2.embedding_length", hidden as u32),
        ("qwen2.feed_forward_length", wide as u32),
        ("qwen2.block_count", 2),
        ("qwen2.attention.head_count", 4),
        ("qwen2.attention.head_count_kv", 2),
        ("qwen2.context_length", 200),
        ("tokenizer.ggml.eos_token_id", 256),
    ] {
        put(key, 4, value.to_le_bytes().to_vec());
    }
    for (key, items) in [("tokenizer.ggml.tokens", words.as_slice()), ("tokenizer.ggml.merges", &[])] {
        let mut bytes = [&8u32.to_le_bytes()[..], &(items.len() as u64).to_le_bytes()].concat();
        items.iter().for_each(|it| put_text(&mut bytes, it));
        put(key, 9, bytes);
    }
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, kind, value) in metadata {
        put_text(&mut out, &key);
        out.extend(kind.to_le_bytes());
        out.extend(value);
    }
    let mut random = Random::new(11);
    let mut data: Vec<u8> = Vec::new();
    for (name, shape, kind, stored) in &tensors {
        put_text(&mut out, name);
        out.extend((shape.len() as u32).to_le_bytes());
        shape.iter().rev().for_each(|side| out.extend((*side as u64).to_le_bytes()));
        out.extend(kind.to_le_bytes());
        data.resize(data.len().next_multiple_of(32), 0);
        out.extend((data.len() as u64).to_le_bytes());
        data.extend(numbers(*kind, *stored, shape.iter().product(), &mut random));
    }
    out.resize(out.len().next_multiple_of(32), 0);
    out.extend(data);
    let path = folder.join("mixed.gguf");
    std::fs::write(&path, out).unwrap();
    path
}

#[test]
fn logits_are_close_to_those_of_the_decoded_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let files = ModelFiles::Disk(&path);
    let (config, origin) = (ModelConfig::load(files).unwrap(), WeightOrigin::Files(files));
    let text = text(1, 60, 257);
    let exact = served_logits(&config, &origin, &text, WeightForm::F32);
    let (off, most, same) = compare(&served_logits(&config, &origin, &text, WeightForm::Stored), &exact);
    println!("off by {off}, logits up to {most}, likeliest the same at {same} of 60");
    assert!(most > 0.0 && off < 0.1 * most && same >= 50, "off by {off} of {most}, {same} of 60 alike");
}

#[test]
fn weights_in_memory_take_no_more_than_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path());
    let engine = Engine::load(&path, settings(WeightForm::Stored)).unwrap();
    let size = std::fs::metadata(&path).unwrap().len() as usize;
    assert!(engine.bytes_per_step() < size * 11 / 10, "{} of {size}", engine.bytes_per_step());
    let other = Engine::load(&path, settings(WeightForm::Int8)).unwrap();
    assert_ne!(engine.fingerprint(), other.fingerprint());
    assert_eq!(engine.fingerprint(), Engine::load(&path, settings(WeightForm::Stored)).unwrap().fingerprint());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_request_gets_the_same_reply_whatever_is_beside_it(
        kinds in prop::collection::vec(0u64..1_000, 1..40),
        threads in 1usize..4,
        width in 1usize..40,
        chunk in 16usize..200,
        share in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = file(folder.path());
        let load = |settings| Engine::load(&path, settings).unwrap();
        let alone = load(EngineSettings { width: 1, share: false, chunk: 16, ..settings(WeightForm::Stored) });
        let threads = Arc::new(ThreadPool::new(threads));
        let crowded = load(EngineSettings { threads, width, chunk, share, ..settings(WeightForm::Stored) });
        let pending: Vec<PendingCompletion> = kinds.iter().map(|kind| crowded.try_submit(request(*kind)).unwrap()).collect();
        for (kind, pending) in kinds.iter().zip(pending) {
            let expected = alone.try_submit(request(*kind)).unwrap().wait().unwrap();
            prop_assert_eq!(essence(pending.wait().unwrap()), essence(expected), "kind {}", kind);
        }
    }
}
