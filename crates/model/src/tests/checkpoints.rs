//! What is saved can be read again, whole or in shards; damage is reported.

use super::*;

#[test]
fn a_model_that_was_saved_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut policy = small(11);
    for _ in 0..3 {
        policy.update(&lesson(), &STEP).unwrap();
    }
    policy.save(folder.path(), Precision::F32).unwrap();
    policy.save_state(&folder.path().join("state")).unwrap();
    let mut again = LanguagePolicy::load(folder.path(), DeviceChoice::Cpu, Learning::Everything).unwrap();
    again.load_state(&folder.path().join("state")).unwrap();
    assert_eq!((again.config(), again.steps()), (policy.config(), 3));
    // Learning goes on to the same bits.
    for _ in 0..3 {
        assert_eq!(policy.update(&lesson(), &STEP).unwrap(), again.update(&lesson(), &STEP).unwrap());
    }
    policy.save(folder.path(), Precision::Bf16).unwrap();
    let half = LanguagePolicy::load(folder.path(), DeviceChoice::Cpu, Learning::Nothing).unwrap();
    let sequence = lesson()[0].sequence.clone();
    let (a, b) = (policy.score(std::slice::from_ref(&sequence), 1.0).unwrap(), half.score(&[sequence], 1.0).unwrap());
    for (a, b) in a.concat().iter().zip(b.concat()) {
        assert!((a - b).abs() < 0.1, "{a} {b}");
    }
}

#[test]
fn a_model_in_shards_is_the_same() {
    let fixture = fixtures().remove(0);
    let (folder, config) = folder_of(&fixture);
    let read = |folder: &Path| {
        let files = WeightFiles::open(ModelFiles::Disk(folder)).unwrap();
        let value = |(name, shape): (String, Vec<usize>)| {
            let tensor = files.read(&name, &shape, DType::F32, &Device::Cpu).unwrap();
            (name, tensor)
        };
        config.tensor_shapes().into_iter().map(value).collect::<Vec<(String, Tensor)>>()
    };
    let whole = read(folder.path());
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let mut map = serde_json::Map::new();
    for (number, tensors) in whole.chunks(whole.len().div_ceil(3)).enumerate() {
        let shard = format!("model-{number:05}-of-00003.safetensors");
        crate::weights::write(&folder.path().join(&shard), tensors, DType::F32).unwrap();
        map.extend(tensors.iter().map(|(name, _)| (name.clone(), shard.clone().into())));
    }
    let index = |map: &serde_json::Map<String, serde_json::Value>| {
        let text = serde_json::json!({"metadata": {"total_size": 1}, "weight_map": map}).to_string();
        std::fs::write(folder.path().join("model.safetensors.index.json"), text).unwrap();
    };
    index(&map);
    for ((name, a), (_, b)) in whole.iter().zip(read(folder.path())) {
        let values = |it: &Tensor| it.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(values(a), values(&b), "{name}");
    }
    // A name that leads out of the folder, and a shard that is not there.
    for (shard, fact) in
        [("../x.safetensors", "is not the name of a shard"), ("gone.safetensors", "gone.safetensors: ")]
    {
        map.insert("model.norm.weight".to_owned(), shard.into());
        index(&map);
        let error = WeightFiles::open(ModelFiles::Disk(folder.path())).err().unwrap().to_string();
        assert!(error.contains(fact), "{error}");
    }
}

#[test]
fn adapters_begin_as_nothing_and_learn() {
    let folder = tempfile::tempdir().unwrap();
    let mut base = small(12);
    for _ in 0..100 {
        base.update(&lesson(), &STEP).unwrap();
    }
    base.save(folder.path(), Precision::F32).unwrap();
    let learning = Learning::Adapters(LoraSettings { rank: 4, alpha: 8.0 });
    let mut adapted = LanguagePolicy::load(folder.path(), DeviceChoice::Cpu, learning).unwrap();
    let other: Vec<Example> =
        [("one", "uno"), ("two", "dos"), ("three", "tres")].map(|(a, b)| likelihood(a, b)).to_vec();
    let sequences: Vec<Sequence> = other.iter().map(|it| it.sequence.clone()).collect();
    assert_eq!(base.score(&sequences, 1.0).unwrap(), adapted.score(&sequences, 1.0).unwrap());
    let step = StepSettings { learning_rate: 1e-2, ..STEP };
    let first = adapted.update(&other, &step).unwrap();
    for _ in 0..100 {
        adapted.update(&other, &step).unwrap();
    }
    let last = adapted.update(&other, &step).unwrap();
    assert!(last.loss < first.loss / 4.0, "{first:?} {last:?}");
    // What is saved has the adapters in it.
    adapted.save(folder.path(), Precision::F32).unwrap();
    let merged = LanguagePolicy::load(folder.path(), DeviceChoice::Cpu, Learning::Nothing).unwrap();
    let (a, b) = (adapted.score(&sequences, 1.0).unwrap(), merged.score(&sequences, 1.0).unwrap());
    for (a, b) in a.concat().iter().zip(b.concat()) {
        assert!((a - b).abs() < 1e-3, "{a} {b}");
    }
}

#[test]
fn damaged_checkpoints_say_what_is_wrong() {
    fn check(damage: impl FnOnce(&Path), expected: &str) {
        let folder = tempfile::tempdir().unwrap();
        small(13).save(folder.path(), Precision::F32).unwrap();
        damage(folder.path());
        let error =
            LanguagePolicy::load(folder.path(), DeviceChoice::Cpu, Learning::Nothing).err().unwrap().to_string();
        let error = error.replace(&folder.path().display().to_string(), "MODEL");
        assert!(error.contains(expected), "{error}");
    }
    let cut = |name: &'static str, keep: usize| {
        move |folder: &Path| {
            let bytes = std::fs::read(folder.join(name)).unwrap();
            std::fs::write(folder.join(name), &bytes[..keep]).unwrap();
        }
    };
    let edit = |from: &'static str, to: &'static str| {
        move |folder: &Path| {
            let path = folder.join("config.json");
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{text}");
            std::fs::write(path, text.replace(from, to)).unwrap();
        }
    };
    check(cut("model.safetensors", 5), "MODEL/model.safetensors: it has 5 bytes and is cut short before its header");
    check(cut("model.safetensors", 100), "the whole file has 100: it is cut short or no safetensors file");
    check(cut("model.safetensors", 9_000), "bytes, the file has 9000: it is cut short or damaged");
    check(cut("config.json", 40), "MODEL/config.json: it is not JSON");
    check(|folder| std::fs::remove_file(folder.join("config.json")).unwrap(), "MODEL/config.json: ");
    check(|folder| std::fs::remove_file(folder.join("model.safetensors")).unwrap(), "MODEL/model.safetensors: ");
    check(
        edit("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
        "there is no tensor `model.layers.2.input_layernorm.weight`",
    );
    check(
        edit("\"intermediate_size\": 96", "\"intermediate_size\": 97"),
        "the tensor `model.layers.0.mlp.gate_proj.weight` has the shape [96, 32], the config says [97, 32]",
    );
    check(edit("\"qwen2\"", "\"gpt2\""), "`model_type` is `gpt2`; qwen2, qwen3 and llama can be read");
    check(edit("\"silu\"", "\"gelu\""), "`hidden_act` is `gelu`; silu can be computed");
    check(
        edit("\"num_attention_heads\": 1", "\"num_attention_heads\": -1"),
        "`num_attention_heads` is -1; a whole number from 1 to",
    );
    check(edit("\"hidden_size\": 32", "\"hidden_size\": 1e99"), "`hidden_size` is 1e+99; a whole number from 1 to");
    check(edit("\"vocab_size\": 260", "\"vocab_size\": 26"), "the tokenizer has 257 tokens, the model 26");
}
