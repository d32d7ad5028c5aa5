use super::score::{ScoreQuestion, markdown, score};
use super::*;
use lemon_model::tokenizer::{Message, Role};
use lemon_model::{DeviceChoice, Learning, ModelConfig, Tokenizer};
use lemon_problems::{Generator, Leaks, LessonForm, Noise, Problem, ProblemPart, prompt, read_published};
use std::collections::HashMap;
use std::sync::LazyLock;

static VOCABULARY: LazyLock<Tokenizer> = LazyLock::new(|| vocabulary(&Sources::default()).unwrap());

fn policy() -> LanguagePolicy {
    let config = ModelConfig { layers: 1, hidden: 32, intermediate: 64, ..Size::Small.config(&VOCABULARY) };
    LanguagePolicy::fresh(config, VOCABULARY.clone(), 1, DeviceChoice::Cpu, Learning::Everything).unwrap()
}

fn stream(seed: u64) -> LessonStream {
    LessonStream::new(seed, &Sources::default(), None, &VOCABULARY)
}

/// A model that has learned to say this and nothing else.
fn parrot(says: &str) -> LanguagePolicy {
    let mut policy = policy();
    let tokens: Vec<u32> = VOCABULARY.encode_plain(says).into_iter().chain([VOCABULARY.end()]).collect();
    let lessons = stream(9).block(0);
    for step in 0..60 {
        let example = |lesson: &LessonTokens| {
            let prompt = lesson.tokens[..lesson.prompt].to_vec();
            let weights = vec![0.02; tokens.len()];
            let sequence = lemon_model::Sequence { prompt, tokens: tokens.clone(), grammar: None };
            Example { sequence, objective: lemon_model::Objective::Likelihood { weights } }
        };
        let examples: Vec<Example> = lessons[step % 16 * 8..][..8].iter().map(example).collect();
        let settings = StepSettings { learning_rate: 1e-2, temperature: 1.0, clip_norm: 1.0, micro_batch: 0 };
        policy.update(&examples, &settings).unwrap();
    }
    policy
}

#[test]
fn the_vocabulary_has_single_digits_and_is_always_the_same() {
    assert_eq!(VOCABULARY.vocabulary(), 2_560);
    let numbers = (0..2_560).map(|token| VOCABULARY.bytes(token)).filter(|it| it.iter().any(u8::is_ascii_digit));
    assert_eq!(numbers.map(<[u8]>::len).collect::<Vec<_>>(), [1; 10]);
    let text = "task: ana had 1200 pens.\nread: 7 * 3 = 21; #### 21\ncheck:\n";
    let message = Message { role: Role::User, content: text.to_owned() };
    assert_eq!(VOCABULARY.prompt(&[message]).unwrap(), VOCABULARY.encode(text));
    assert_eq!(VOCABULARY.decode(&VOCABULARY.encode(text)), text);
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    VOCABULARY.save(folders[0].path()).unwrap();
    vocabulary(&Sources::default()).unwrap().save(folders[1].path()).unwrap();
    let [one, other] = folders.each_ref().map(|it| std::fs::read(it.path().join("tokenizer.json")).unwrap());
    assert!(one == other);
}

#[test]
fn sizes_are_what_they_say() {
    let millions = |size: Size| size.config(&VOCABULARY).parameters() as f64 / 1e6;
    let sizes = [Size::Small, Size::Medium, Size::Large].map(millions);
    for (found, expected) in sizes.into_iter().zip([0.68, 3.15, 11.9]) {
        assert!((found / expected - 1.0).abs() < 0.05, "{found} for {expected}");
    }
}

#[test]
fn lessons_follow_from_their_numbers() {
    let stream = Arc::new(stream(3));
    let taken = |first: u64, threads: usize, count: usize| -> Vec<LessonTokens> {
        Prefetcher::new(stream.clone(), first, threads).unwrap().take(count).collect()
    };
    let all = taken(0, 1, 1_200);
    assert_eq!(all.len(), 1_200);
    assert!(all.iter().all(|lesson| lesson.tokens.len() <= size::CONTEXT));
    for (first, threads) in [(0, 3), (1, 2), (255, 1), (256, 2), (700, 4)] {
        assert!(taken(first, threads, 500) == all[first as usize..first as usize + 500], "{first} {threads}");
    }
    assert_ne!(all[..256], all[256..512]);
    assert_ne!(self::stream(4).block(0), stream.block(0));
}

#[test]
fn a_lesson_becomes_an_example() {
    let tokens = LessonTokens { tokens: vec![5, 6, 7, 8, 9], prompt: 3, dropped: 0 };
    assert!((tokens.weight() - 2.2).abs() < 1e-6);
    let example = tokens.example(2.0);
    assert_eq!((example.sequence.prompt, example.sequence.tokens), (vec![5], vec![6, 7, 8, 9]));
    let lemon_model::Objective::Likelihood { weights } = example.objective else { panic!() };
    assert_eq!(weights, [0.05, 0.05, 0.5, 0.5]);
}

const SETTINGS: fn() -> PretrainSettings = || PretrainSettings {
    seed: 5,
    tokens: 12_000,
    batch: 12,
    learning_rate: 1e-2,
    eval_every: 4,
    ..PretrainSettings::default()
};

fn run(folder: &Path, settings: &PretrainSettings, stop_after: u64) -> (Pretrained, Vec<PretrainMetrics>) {
    let held_out = HeldOutProblems::new(&Sources::default(), 6, &VOCABULARY);
    let mut seen = Vec::new();
    let done = pretrain(&mut policy(), stream(settings.seed), &held_out, settings, folder, |metrics| {
        seen.push(metrics.clone());
        metrics.step < stop_after
    });
    (done.unwrap(), seen)
}

#[test]
fn a_run_learns_and_if_broken_off_ends_with_the_same_bits() {
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (done, seen) = run(whole.path(), &SETTINGS(), u64::MAX);
    let last = seen.last().unwrap();
    assert!(last.loss < 0.8 * seen[0].loss, "{} to {}", seen[0].loss, last.loss);
    assert!(done.tokens >= 12_000 && last.eval.is_some() && done.step > 8, "{done:?}");
    for stop in [2, 6] {
        run(parts.path(), &SETTINGS(), stop);
    }
    assert_eq!(run(parts.path(), &SETTINGS(), u64::MAX).0, done);
    let checkpoint = format!("checkpoint-{:08}/model.safetensors", done.step);
    for name in ["metrics.jsonl", "best/model.safetensors", &checkpoint] {
        let [one, other] = [&whole, &parts].map(|folder| std::fs::read(folder.path().join(name)).unwrap());
        assert!(one == other, "{name}");
    }
    assert_eq!(run(parts.path(), &SETTINGS(), u64::MAX), (done, Vec::new()));
}

#[test]
fn the_best_is_kept_and_patience_ends() {
    let mut state = Pretrained::default();
    let mut eval = |right: f64, loss: f64| {
        state.step += 1;
        state.eval(PretrainEval { right, loss, ..PretrainEval::default() }, 2);
        (state.best_step, state.stopped_early)
    };
    assert_eq!(eval(0.0, 3.0), (1, false));
    assert_eq!(eval(0.0, 2.0), (2, false));
    assert_eq!(eval(0.5, 2.5), (3, false));
    assert_eq!(eval(0.4, 1.0), (3, false));
    assert_eq!(eval(0.5, 2.6), (3, true));
}

#[test]
fn the_rate_rises_and_falls() {
    let settings = PretrainSettings { tokens: 1_000, learning_rate: 1.0, warm_up: 0.1, final_rate: 0.1, ..SETTINGS() };
    for (tokens, rate) in [(50, 0.5), (100, 1.0), (550, 0.55), (1_000, 0.1), (2_000, 0.1)] {
        assert!((settings.rate(tokens) - rate).abs() < 1e-12, "{tokens}");
    }
}

/// Problems of the part for checkers, each with these replies.
fn replies(count: usize, texts: &[&str]) -> PeerReplies {
    let mut generator = Generator::new(2, ProblemPart::Review);
    PeerReplies::new((0..count).map(|_| (generator.problem(), texts.iter().map(|it| (*it).to_owned()).collect())))
}

#[test]
fn what_is_for_checkers_is_never_taught_before() {
    let parts = |stream: &LessonStream| {
        let mut counts: HashMap<ProblemPart, usize> = HashMap::new();
        for made in (0..8).flat_map(|block| stream.lessons(block).take(BLOCK)) {
            *counts.entry(ProblemPart::of(&made.situation)).or_default() += 1;
        }
        counts
    };
    assert_eq!(parts(&stream(1)), HashMap::from([(ProblemPart::Train, 8 * BLOCK)]));
    let replies = Arc::new(replies(20, &["#### 1"]));
    let second = parts(&LessonStream::new(1, &Sources::default(), Some(replies), &VOCABULARY));
    let share = 100 * second[&ProblemPart::Review] / (8 * BLOCK);
    assert!((22..40).contains(&share) && !second.contains_key(&ProblemPart::Dev), "{second:?}");
}

#[test]
fn checks_and_choices_are_of_real_replies() {
    let said = ["#### 123456", "#### 123457", "one two three"];
    let stream = LessonStream::new(1, &Sources::default(), Some(Arc::new(replies(50, &said))), &VOCABULARY);
    let mut real = HashMap::from([(LessonForm::Check, (0, 0)), (LessonForm::Choose, (0, 0))]);
    for made in stream.lessons(0).take(4_000) {
        let Some((real, all)) = real.get_mut(&made.lesson.form) else { continue };
        let read: Vec<&str> = made.lesson.prompt.lines().filter_map(|line| line.strip_prefix("read: ")).collect();
        *all += 1;
        if read.iter().all(|reading| said.contains(reading)) {
            *real += 1;
            let expected = if made.lesson.form == LessonForm::Check { 1..=1 } else { 2..=3 };
            assert!(expected.contains(&read.len()), "{read:?}");
            assert_eq!(ProblemPart::of(&made.situation), ProblemPart::Review);
        }
    }
    for (form, (real, all)) in real {
        let share = 100 * real / all;
        assert!((23..38).contains(&share), "{form:?}: {real} of {all}");
    }
}

#[test]
fn choices_without_a_solution_are_rare() {
    let mut generator = Generator::new(2, ProblemPart::Review);
    let problems: Vec<Problem> = (0..40).map(|_| generator.problem()).collect();
    let hopeless = |at: usize| at.is_multiple_of(2);
    let answered = problems.into_iter().enumerate().map(|(at, problem)| {
        let right = problem.solution();
        (problem, vec!["hopeless".to_owned(), if hopeless(at) { "hopeless".to_owned() } else { right }])
    });
    let replies = PeerReplies::new(answered);
    assert_eq!(replies.shares(), (0.5, 0.25));
    let mut random = lemon_problems::seeded(1);
    let chosen = (0..2_000).map(|_| replies.lesson(LessonForm::Choose, Noise::default(), &mut random).0);
    let without = chosen.filter(|lesson| lesson.prompt.matches("hopeless").count() == 2).count();
    // One in four of one half, against the other half.
    assert!((330..470).contains(&without), "{without}");
}

#[test]
fn replies_are_drawn_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run/replies.jsonl");
    let obtain = |count: usize, workers: Vec<LanguagePolicy>| {
        PeerReplies::obtain(&file, &Sources::default(), count, workers.into_iter().map(Ok))
    };
    let drawn = obtain(5, vec![parrot("#### 7"), policy()]).unwrap();
    assert_eq!(obtain(5, Vec::new()).unwrap(), drawn);
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!((lines.lines().count(), lines.matches("\"#### 7\",\"#### 7\"").count()), (5, 5));
    let error = obtain(6, Vec::new()).unwrap_err().to_string();
    assert!(error.ends_with("the replies are to other problems; take another folder"), "{error}");
    std::fs::write(&file, "nonsense").unwrap();
    assert!(obtain(5, Vec::new()).unwrap_err().to_string().contains("line 1: "));
}

#[test]
fn no_test_question_is_taught() {
    // The tests are problems like those that would be taught, and one of the published ones.
    let mut generator = Generator::new(77, ProblemPart::Train);
    let mut tests: Vec<String> = (0..60).map(|_| generator.problem().question).collect();
    tests.push("Petra has 8 kites and loses 2. How many kites has she left?".to_owned());
    let leaks = Arc::new(Leaks::of(&tests));
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [
        (
            "gsm8k/train.jsonl",
            r#"{"question": "A mill grinds 14 sacks a day for 3 days. How many sacks is that?", "answer": "<<14*3=42>>\n#### 42"}"#,
        ),
        (
            "svamp/mawps-asdiv-a_svamp_train.csv",
            "Question,Numbers,Equation,Answer\nMona has number0 kites and loses number1 . How many kites has she left ?,9.0 4.0,- number0 number1,5.0\n",
        ),
    ] {
        let path = folder.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let published = read_published(folder.path(), &leaks).unwrap();
    assert_eq!((published.templates.len(), published.dropped.near), (1, 1));
    let sources = Sources { templates: published.templates, leaks: Some(leaks.clone()) };
    let stream = LessonStream::new(1, &sources, None, &VOCABULARY);
    let (mut dropped, mut mills) = (0, 0);
    for made in (0..8).flat_map(|block| stream.lessons(block).take(BLOCK)) {
        let task = made.lesson.prompt.lines().next().unwrap().strip_prefix("task: ").unwrap();
        assert_eq!(leaks.find(task), None, "{task}");
        dropped += made.dropped;
        mills += usize::from(made.situation.starts_with("published:"));
    }
    assert!(dropped > 20 && mills > 100, "{dropped} {mills}");
}

#[test]
fn scores_count_what_is_right() {
    let question = |number: usize, answer| ScoreQuestion {
        text: format!("Ana had {number} pens and {} caps. How many things had she?", number + 2),
        answer,
    };
    let questions =
        [question(3, Some(7)), question(4, Some(9)), question(5, None), question(6, Some(7)), question(7, Some(7))];
    let long = ScoreQuestion { text: "many words ".repeat(400), answer: Some(7) };
    let questions = [&questions[..], &[long]].concat();
    let workers = [("seven".to_owned(), parrot("#### 7")), ("nine".to_owned(), parrot("2 + 7 = 9\n#### 9"))];
    let scores = score(&workers, "pens", &questions).unwrap();
    assert_eq!((scores.questions, scores.clusters), (6, 2));
    let shares: Vec<[f64; 3]> =
        scores.workers.iter().map(|it| [it.solve, it.brief, it.choose].map(|rate| rate.share)).collect();
    assert_eq!(shares, [[0.5; 3], [1.0 / 6.0; 3]]);
    assert!((scores.any.share - 4.0 / 6.0).abs() < 1e-12);
    let check = &scores.workers[0].checks[0];
    assert_eq!((check.of.as_str(), check.fixed, check.wrong, check.broke, check.right), ("nine", 3, 5, 1, 1));
    let end = 1;
    let tokens = VOCABULARY.encode("#### 7").len() + end;
    assert!((scores.workers[0].tokens - (5 * tokens) as f64 / 6.0).abs() < 1e-12);
    let text = markdown(&[scores]);
    assert!(text.contains("## pens: 6 questions in 2 clusters; at least one worker is right: 66.7 ["), "{text}");
    assert!(text.contains("| seven | nine | 50.0 [") && text.contains("| 3 of 5 | 1 of 1 |"), "{text}");
}

#[test]
fn the_surest_are_counted_apart() {
    let sure = [-0.1, -0.9, -0.2, -0.8, f64::NEG_INFINITY, -0.3, -0.4, -0.5];
    let right = [true, false, true, true, false, false, true, true];
    assert_eq!(score::by_confidence(&sure, &right), [0.0, 1.0, 0.5, 1.0]);
}

#[test]
fn an_exam_counts_what_is_right() {
    let held_out = HeldOutProblems::new(&Sources::default(), 40, &VOCABULARY);
    let eval = held_out.evaluate(&parrot("#### 7")).unwrap();
    let mut generator = Generator::new(held_out::SEED, ProblemPart::Dev).with_weights(held_out::WEIGHTS);
    let sevens = (0..40).filter(|_| generator.problem().answer == 7).count();
    assert_eq!((eval.right, eval.own, eval.published), (sevens as f64 / 40.0, eval.right, None));
    assert!(eval.loss > 1.0 && eval.tokens > 2.0, "{eval:?}");
    let said = prompt(LessonForm::Solve, "How many?", &[]);
    assert_eq!(answer(&parrot("#### 7"), &[said], 0.0, 0).unwrap()[0].text, "#### 7");
}
