//! Measures the GPU kernels, without the rest of the engine: random weights, fixed prompts and replies.
//!
//! ```text
//! gpu_bench check [serving|training]
//! gpu_bench run SHAPE TEXTS PROMPT REPLY SHARED [CHUNK] [ROUNDS]
//! gpu_bench profile SHAPE TEXTS CONTEXT
//! gpu_bench train SHAPE full|lora TEXTS SHARED OWN [STEPS]
//! ```
//! With `NO_OVERLAP` set, no kernel starts before the one before it ends. `SHAPE` is `qwen` (2.5, 1.5B), `smol` (135M), `42m` or `tiny`; prompts are shared by `SHARED` texts.

use lemon_gpu::{
    AdamStep, Batch, ChosenToken, Device, GpuError, Model, ModelSettings, ModelShape, Numbers, OF_DRAW, PAGE,
    PositionRow, Sampling, Scored, TrainBatch, TrainGroup, TrainLearning, TrainSettings, TrainText, Trainer, check,
    check_training,
};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: usize| args.get(at).map_or(Ok(default), |it| it.parse::<usize>());
    let device = Device::open()?;
    device.set_overlap(std::env::var_os("NO_OVERLAP").is_none());
    let info = device.info();
    match args.first().map(String::as_str) {
        Some("check") => {
            println!("{}, compute capability {:?}", info.name, info.capability);
            let mut rows = Vec::new();
            if args.get(1).is_none_or(|it| it == "serving") {
                rows.extend(check(&device)?);
            }
            if args.get(1).is_none_or(|it| it == "training") {
                rows.extend(check_training(&device)?);
            }
            for row in &rows {
                let verdict = if row.passes() { "ok" } else { "WRONG" };
                println!("{verdict:5} {:.2e} (limit {:.0e})  {}", row.error, row.limit, row.name);
            }
            match rows.iter().filter(|row| !row.passes()).count() {
                0 => {
                    println!("all {} checks passed", rows.len());
                    Ok(())
                }
                wrong => Err(format!("{wrong} of {} checks failed", rows.len()).into()),
            }
        }
        Some("run") => {
            let (texts, prompt, reply, shared) = (number(2, 256)?, number(3, 600)?, number(4, 200)?, number(5, 1)?);
            let (chunk, rounds) = (number(6, 8_192)?, number(7, 3)?);
            let load = Load { texts, prompt, reply, shared };
            let mut model = load.model(&device, shape(args.get(1))?, chunk)?;
            let mut rates = Vec::new();
            for round in 0..=rounds {
                let took = load.run(&mut model, chunk, true)?;
                let written = (texts * reply) as f64;
                let rate = written / (took.prompts + took.replies);
                let rest = written - texts as f64;
                println!(
                    "  round {round}: {rate:.0} tok/s; prompts {:.3} s ({:.0} rows/s), replies {:.3} s ({:.0} tok/s, {:.2} ms a step)",
                    took.prompts,
                    took.rows as f64 / took.prompts,
                    took.replies,
                    rest / took.replies,
                    1e3 * took.replies / (reply - 1).max(1) as f64,
                );
                // The first round times algorithms and records graphs.
                if round > 0 {
                    rates.push(rate);
                }
            }
            let alone = load.run(&mut model, chunk, false)?;
            println!("  waiting for each step: {:.2} ms a step", 1e3 * alone.replies / (reply - 1).max(1) as f64);
            rates.sort_by(f64::total_cmp);
            let median = rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN);
            println!("{:?} {texts} x ({prompt} + {reply}), prompts shared by {shared}: {median:.0} tok/s", args.get(1));
            Ok(())
        }
        Some("profile") => {
            let (texts, context) = (number(2, 256)?, number(3, 700)?);
            let load = Load { texts, prompt: context, reply: 8, shared: 1 };
            let mut model = load.model(&device, shape(args.get(1))?, 8_192)?;
            load.profile(&mut model)?;
            Ok(())
        }
        Some("train") => {
            let learning = match args.get(2).map(String::as_str) {
                Some("full") => TrainLearning::Everything,
                Some("lora") => TrainLearning::Adapters { rank: 16, alpha: 32.0 },
                other => return Err(format!("expected full or lora, found {other:?}").into()),
            };
            let (texts, shared, own) = (number(3, 16)?, number(4, 0)?, number(5, 800)?);
            train(&device, shape(args.get(1))?, learning, [texts, shared, own], number(6, 5)?)?;
            println!("{:?} {:?} {texts} x ({shared} shared + {own})", args.get(1), args.get(2));
            Ok(())
        }
        _ => Err("expected check, run, profile or train".into()),
    }
}

/// What the variable `LEMON_GPU_NUMBERS` says.
fn numbers() -> Numbers {
    match std::env::var("LEMON_GPU_NUMBERS").as_deref() {
        Ok("bf16") => Numbers::Bf16,
        _ => Numbers::default(),
    }
}

fn shape(name: Option<&String>) -> Result<ModelShape, String> {
    match name.map(String::as_str) {
        Some("qwen") => Ok(ModelShape::qwen_1_5b()),
        Some("smol") => Ok(ModelShape::smol_135m()),
        Some("42m") => Ok(ModelShape {
            vocabulary: 32_000,
            hidden: 512,
            intermediate: 1_408,
            layers: 8,
            heads: 8,
            kv_heads: 8,
            ..ModelShape::smol_135m()
        }),
        Some("tiny") => {
            Ok(ModelShape { layers: 2, hidden: 64, vocabulary: 500, intermediate: 96, ..ModelShape::smol_135m() })
        }
        other => Err(format!("expected the shape qwen or smol, found {other:?}")),
    }
}

/// Whole steps of training: passes forwards and backwards over all tokens, the norm, and the optimiser.
fn train(
    device: &std::sync::Arc<Device>,
    shape: ModelShape,
    learning: TrainLearning,
    [texts, shared, own]: [usize; 3],
    steps: usize,
) -> Result<(), GpuError> {
    let start = Instant::now();
    let vocabulary = shape.vocabulary;
    let token = |at: usize| (at * 7_919 % vocabulary.min(40_000)) as u32;
    let text = |number: usize| TrainText {
        tokens: (0..own).map(|at| token(number * 1_013 + at)).collect(),
        choices: (0..own)
            .map(|at| ChosenToken { after: at as u32, token: token(number * 1_013 + at + 1), mask: None })
            .collect(),
    };
    // Eight texts share a beginning.
    let groups = (0..texts).step_by(if shared > 0 { 8 } else { 1 }).map(|first| TrainGroup {
        shared: (0..shared).map(|at| token(first + at)).collect(),
        texts: (first..texts.min(first + if shared > 0 { 8 } else { 1 })).map(text).collect(),
    });
    let batch = TrainBatch { groups: groups.collect(), masks: Vec::new() };
    let settings = TrainSettings { rows: batch.rows(), head_rows: 4_096, positions: shared + own, learning };
    let mut trainer = Trainer::new(device, shape, settings)?;
    trainer.randomise(7)?;
    println!("  made in {:.1} s", start.elapsed().as_secs_f64());
    let slope = -1.0 / (texts * own) as f32;
    let mut slopes = |_: usize, scored: &[Scored]| vec![slope; scored.len()];
    let mut times = Vec::new();
    for step in 0..steps as u64 + 2 {
        let start = Instant::now();
        let scored = trainer.accumulate(&batch, 1.0, &mut slopes)?;
        let norm = trainer.gradient_norm()?;
        let passed = start.elapsed().as_secs_f64();
        let adam = AdamStep {
            rate: 1e-4,
            beta1: 0.9,
            beta2: 0.98,
            epsilon: 1e-8,
            weight_decay: 0.01,
            step: step + 1,
            scale: 1.0,
        };
        trainer.step(&adam)?;
        trainer.wait()?;
        let took = start.elapsed().as_secs_f64();
        let loss = -scored.iter().map(|it| f64::from(it.logprob)).sum::<f64>() / scored.len() as f64;
        println!("  step {step}: {:.1} ms, passes {:.1} ms, loss {loss:.4}, norm {norm:.4}", 1e3 * took, 1e3 * passed);
        if step > 1 {
            times.push(took);
        }
    }
    let profile = trainer.profile(&batch, &mut slopes)?;
    let all: f32 = profile.values().sum();
    for (name, took) in profile {
        println!("    {name:22} {took:8.2} ms {:4.0} %", 100.0 * took / all);
    }
    times.sort_by(f64::total_cmp);
    let median = times.get(times.len() / 2).copied().unwrap_or(f64::NAN);
    // Tokens as a program counts them that computes the shared beginning for each text.
    let (rows, tokens) = (batch.rows() as f64, (texts * (shared + own)) as f64);
    println!(
        "  {:.1} ms a step: {:.0} rows/s, {:.0} tokens/s, {:.2} texts/s",
        1e3 * median,
        rows / median,
        tokens / median,
        texts as f64 / median
    );
    Ok(())
}

/// Texts of equal length.
struct Load {
    texts: usize,
    prompt: usize,
    reply: usize,
    shared: usize,
}

/// Seconds.
struct Took {
    prompts: f64,
    replies: f64,
    rows: usize,
}

impl Load {
    fn pages_of_text(&self) -> usize {
        (self.prompt + self.reply).div_ceil(PAGE)
    }

    fn model(&self, device: &std::sync::Arc<Device>, shape: ModelShape, chunk: usize) -> Result<Model, GpuError> {
        let start = Instant::now();
        let settings = ModelSettings {
            rows: chunk + self.texts,
            draws: self.texts,
            pages: self.texts * self.pages_of_text(),
            positions: self.prompt + self.reply + PAGE,
            graphs: true,
            tuning: true,
            numbers: numbers(),
        };
        let mut model = Model::new(device, shape, settings)?;
        model.randomise(7)?;
        println!("  made in {:.1} s, {} MiB of weights", start.elapsed().as_secs_f64(), model.weight_bytes() >> 20);
        Ok(model)
    }

    /// The pages of a text: those of the first one in its group as far as the prompt fills them.
    fn pages(&self, text: usize) -> impl Iterator<Item = u32> + use<> {
        let (of_text, shared) = (self.pages_of_text(), self.prompt / PAGE);
        let leader = text - text % self.shared;
        (0..of_text).map(move |page| ((if page < shared { leader } else { text }) * of_text + page) as u32)
    }

    fn sampling(text: usize, index: usize) -> Sampling {
        Sampling { temperature: 1.0, top_p: 1.0, seed: text as u64, index: index as u64, mask: None }
    }

    fn token(text: usize, at: usize) -> u32 {
        ((text * 7_919 + at * 104_729) % 40_000) as u32
    }

    /// Reads all prompts in chunks; the first tokens drawn.
    fn read(&self, model: &mut Model, chunk: usize) -> Result<(Vec<u32>, usize), GpuError> {
        let mut first = vec![0; self.texts];
        let mut rows = 0;
        // The leaders of all groups, then the ends of the others' prompts.
        for leaders in [true, false] {
            let texts: Vec<usize> =
                (0..self.texts).filter(|text| text.is_multiple_of(self.shared) == leaders).collect();
            let start = if leaders { 0 } else { (self.prompt - 1) / PAGE * PAGE };
            let mut todo: Vec<(usize, usize)> = texts.iter().map(|text| (*text, start)).collect();
            todo.reverse();
            while !todo.is_empty() {
                let (mut batch, mut whose) = (Batch::default(), Vec::new());
                while let Some((text, at)) = todo.pop() {
                    let count = (self.prompt - at).min(chunk - batch.rows.len());
                    let pages = batch.pages.len() as u32;
                    batch.pages.extend(self.pages(text));
                    let row = |position| PositionRow {
                        token: Self::token(text - text % self.shared, position),
                        position: position as u32,
                        pages,
                    };
                    batch.rows.extend((at..at + count).map(row));
                    if at + count == self.prompt {
                        batch.draws.push((batch.rows.len() as u32 - 1, Self::sampling(text, 0)));
                        whose.push(text);
                    } else {
                        todo.push((text, at + count));
                    }
                    if batch.rows.len() >= chunk {
                        break;
                    }
                }
                rows += batch.rows.len();
                let pending = model.submit(&batch)?;
                for (text, drawn) in whose.iter().zip(model.wait(pending)?) {
                    first[*text] = drawn.token.ok_or_else(|| GpuError::Request("no token".to_owned()))?;
                }
            }
        }
        Ok((first, rows))
    }

    /// A step in which every text advances by one token.
    fn step(&self, batch: &mut Batch, index: usize, token: impl Fn(usize) -> u32) {
        batch.clear();
        let position = (self.prompt + index - 1) as u32;
        for text in 0..self.texts {
            batch.rows.push(PositionRow { token: token(text), position, pages: batch.pages.len() as u32 });
            batch.pages.extend(self.pages(text).take(position as usize / PAGE + 1));
            batch.draws.push((text as u32, Self::sampling(text, index)));
        }
    }

    fn run(&self, model: &mut Model, chunk: usize, ahead: bool) -> Result<Took, GpuError> {
        let start = Instant::now();
        let (mut tokens, rows) = self.read(model, chunk)?;
        let prompts = start.elapsed().as_secs_f64();
        let start = Instant::now();
        let (mut batch, mut last) = (Batch::default(), None);
        for index in 1..self.reply {
            let of_draw = ahead && index > 1;
            self.step(&mut batch, index, |text| if of_draw { OF_DRAW | text as u32 } else { tokens[text] });
            let pending = model.submit(&batch)?;
            let before = if ahead { last.replace(pending) } else { Some(pending) };
            if let Some(before) = before {
                let drawn = model.wait(before)?;
                tokens = drawn.iter().map(|drawn| drawn.token.unwrap_or(0)).collect();
            }
        }
        if let Some(pending) = last {
            model.wait(pending)?;
        }
        Ok(Took { prompts, replies: start.elapsed().as_secs_f64(), rows })
    }

    /// Where the time of a prompt step and of a token step goes.
    fn profile(&self, model: &mut Model) -> Result<(), GpuError> {
        let (tokens, _) = self.read(model, 8_192)?;
        let mut batch = Batch::default();
        self.step(&mut batch, 1, |text| tokens[text]);
        let mut prompts = Batch::default();
        for text in 0..(8_192 / self.prompt).clamp(1, self.texts) {
            let pages = prompts.pages.len() as u32;
            prompts.pages.extend(self.pages(text));
            let row = |at| PositionRow { token: Self::token(text, at), position: at as u32, pages };
            prompts.rows.extend((0..self.prompt.min(8_192)).map(row));
            prompts.draws.push((prompts.rows.len() as u32 - 1, Self::sampling(text, 0)));
        }
        for (name, batch) in [("tokens", &batch), ("prompts", &prompts)] {
            model.profile(batch)?;
            let totals = model.profile(batch)?;
            let all: f32 = totals.values().sum();
            println!("{name}: {} rows, {all:.2} ms", batch.rows.len());
            for (name, took) in totals {
                println!("  {name:14} {took:7.3} ms {:4.0} %", 100.0 * took / all);
            }
        }
        Ok(())
    }
}
