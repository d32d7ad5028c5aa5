//! Published models against llama.cpp. The folder with the models is `LEMON_REAL_MODELS`; without it the test says that it
//! was skipped. `llama_cpp.py` writes the `.reference.json` beside each model that is compared with.

use lemon_model::tokenizer::{Message, Role};
use lemon_model::{DeviceChoice, LanguagePolicy, Learning, Tokenizer};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// With quantised weights llama.cpp rounds what it multiplies to 8 bits, which this crate does not: the largest margin, in
/// log-probability, at which another token may be ahead, and how far log-probabilities may differ (rms). A model whose name
/// ends in `-f32` is computed alike by both.
fn tolerance(path: &Path) -> (f32, f32) {
    let is_exact = path.file_stem().is_some_and(|it| it.to_string_lossy().ends_with("-f32"));
    if is_exact { (0.001, 0.001) } else { (0.5, 0.3) }
}

#[derive(Deserialize)]
struct Reference {
    texts: Vec<Text>,
    greedy: Vec<Greedy>,
    chats: Vec<Chat>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
    tokens: Vec<u32>,
    /// The same with special tokens as text, where the line has something like them.
    plain: Option<Vec<u32>>,
}

#[derive(Deserialize)]
struct Greedy {
    prompt: Vec<u32>,
    written: Vec<Written>,
}

#[derive(Deserialize)]
struct Written {
    id: u32,
    /// The likeliest tokens and their log-probabilities.
    top: Vec<(u32, f32)>,
}

#[derive(Deserialize)]
struct Chat {
    messages: Vec<Message>,
    prompt: String,
}

/// The models with a reference.
fn models() -> Vec<(PathBuf, Reference)> {
    let Some(folder) = std::env::var_os("LEMON_REAL_MODELS") else {
        println!("skipped: LEMON_REAL_MODELS is not set");
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|it| it == "gguf"));
    paths.sort();
    let reference = |path: PathBuf| {
        let text = std::fs::read(path.with_extension("reference.json")).ok();
        if text.is_none() {
            println!("skipped: {} has no reference", path.display());
        }
        text.map(|text| (path, serde_json::from_slice(&text).unwrap()))
    };
    paths.into_iter().filter_map(reference).collect()
}

#[test]
fn texts_have_llama_cpps_tokens() {
    for (path, reference) in models() {
        let tokenizer = Tokenizer::load(&path).unwrap();
        let texts = reference.texts.iter().map(|it| (&it.text, &it.tokens, tokenizer.encode(&it.text)));
        // llama.cpp takes tokens such as `<tool_call>` from any text; here no untrusted text becomes one of them.
        let is_refused = |token: u32| {
            let text = tokenizer.decode(&[token]);
            text.starts_with('<') && text.ends_with('>') && tokenizer.encode_plain(&text) != [token]
        };
        let plain = reference.texts.iter().filter_map(|it| Some((&it.text, it.plain.as_ref()?)));
        let (refused, plain): (Vec<_>, Vec<_>) =
            plain.partition(|(_, tokens)| tokens.iter().any(|token| is_refused(*token)));
        let (count, refused) = (plain.len(), refused.len());
        let plain = plain.into_iter();
        let plain = plain.map(|(text, tokens)| (text, tokens, tokenizer.encode_plain(text)));
        for (text, tokens, found) in texts.chain(plain) {
            if found != *tokens {
                let at = found.iter().zip(tokens).take_while(|(a, b)| a == b).count();
                let around =
                    |tokens: &[u32]| tokenizer.decode(&tokens[at.saturating_sub(5)..(at + 8).min(tokens.len())]);
                panic!(
                    "{}: {text:?}, token {at}: {:?} {:?}, expected {:?} {:?}",
                    path.display(),
                    around(&found),
                    &found[at..(at + 5).min(found.len())],
                    around(tokens),
                    &tokens[at..(at + 5).min(tokens.len())]
                );
            }
        }
        assert!(reference.texts.len() >= 10_000, "{}: the reference is an older one: write it again", path.display());
        println!(
            "{}: {} lines have the same tokens, {count} of them also with special tokens as text; in {refused} others llama.cpp \
             takes a token from the text that LEMON does not",
            path.display(),
            reference.texts.len()
        );
    }
}

#[test]
fn conversations_are_written_as_llama_cpp_writes_them() {
    for (path, reference) in models() {
        let tokenizer = Tokenizer::load(&path).unwrap();
        for Chat { messages, prompt } in &reference.chats {
            // A message's special tokens are text here, so the texts are compared and not the tokens.
            let words = |text: &str| text.replace(['<', '>', '|'], "");
            let tokens = tokenizer.prompt(messages).unwrap();
            let special = |token: u32| tokenizer.bytes(token).is_empty();
            let said: Vec<&str> = messages.iter().map(|it: &Message| it.content.as_str()).collect();
            assert!(said.iter().all(|said| prompt.contains(said)));
            let ours: String = tokenizer.decode(&tokens);
            let expected = prompt.replace("<|im_start|>", "").replace("<|im_end|>", "");
            assert_eq!(words(&ours).replace("im_end", ""), words(&expected), "{}", path.display());
            let markers =
                prompt.matches("<|im_").count() - said.iter().map(|it| it.matches("<|im_").count()).sum::<usize>();
            assert_eq!(tokens.iter().filter(|token| special(**token)).count(), markers, "{}", path.display());
        }
        assert!(tokenizer.prompt(&[Message { role: Role::User, content: String::new() }]).is_ok());
    }
}

#[test]
fn the_likeliest_tokens_are_llama_cpps() {
    for (path, reference) in models() {
        // The larger ones take many gigabytes in f32; the engine's test reads those.
        if std::fs::metadata(&path).unwrap().len() > 700 << 20 {
            println!("skipped: {} is too large for f32", path.display());
            continue;
        }
        let policy = LanguagePolicy::load(&path, DeviceChoice::Cpu, Learning::Nothing).unwrap();
        for greedy in &reference.greedy {
            check_greedy(&path, &policy, greedy);
        }
    }
}

fn check_greedy(path: &Path, policy: &LanguagePolicy, greedy: &Greedy) {
    let text: Vec<u32> = greedy.prompt.iter().copied().chain(greedy.written.iter().map(|it| it.id)).collect();
    let logits = policy.logits(&text).unwrap();
    let (most_margin, most_rms) = tolerance(path);
    let (mut errors, mut same, mut divergence) = (Vec::new(), 0, 0.0);
    for (at, written) in greedy.written.iter().enumerate() {
        let row = &logits[greedy.prompt.len() - 1 + at];
        let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total = most + row.iter().map(|it| (it - most).exp()).sum::<f32>().ln();
        errors.extend(written.top.iter().take(5).map(|(id, logprob)| row[*id as usize] - total - logprob));
        let ours: Vec<(u32, f32)> = written.top.iter().map(|(id, _)| (*id, row[*id as usize] - total)).collect();
        divergence += kl(&written.top, &ours);
        same += usize::from(row[written.id as usize] == most);
        let margin = written.top[0].1 - written.top[1].1;
        let is_close = row[written.id as usize] == most || margin < most_margin;
        assert!(is_close, "{}: token {at} is another one, its margin was {margin}", path.display());
    }
    let rms = (errors.iter().map(|it| it * it).sum::<f32>() / errors.len() as f32).sqrt();
    let count = greedy.written.len();
    let divergence = divergence / count as f64;
    println!(
        "{}: {same} of {count} alike, log-probabilities differ by {rms} (rms), KL {divergence:.2e}",
        path.display()
    );
    assert!(rms < most_rms, "{}", path.display());
}

/// The divergence of ours from theirs, both over their likeliest tokens, with all other tokens as one. It is at most the
/// divergence over all tokens, and close to it where these have nearly all of the probability.
fn kl(theirs: &[(u32, f32)], ours: &[(u32, f32)]) -> f64 {
    let sum = |all: &[(u32, f32)]| all.iter().map(|(_, logprob)| f64::from(*logprob).exp()).sum::<f64>();
    let rest = |all| (1.0 - sum(all)).max(1e-9);
    let (p, q) = (rest(theirs), rest(ours));
    let each = theirs.iter().zip(ours).map(|((_, p), (_, q))| f64::from(*p).exp() * f64::from(p - q));
    each.sum::<f64>() + p * (p / q).ln()
}
