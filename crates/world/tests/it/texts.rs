//! What replies look like: the graders read them exactly as the world decided, and they are as long as those on record.

use crate::common::*;
use lemon_exec::answer::extract;
use lemon_exec::worker::{FailedCost, Usage};
use lemon_task::{Item, Key, Program, SetName, Verdict, grade, load_jsonl};
use lemon_trace::FailureKind;
use lemon_world::{Fitted, LEVELS, Preset, TaskFamily, World};
use proptest::prelude::*;

/// A world whose agents are always right, or never, and write at full length.
fn certain(right: bool, items: &[Item]) -> World {
    let mut fitted = Fitted::shipped().clone();
    for family in [&mut fitted.reckoning, &mut fitted.knowing, &mut fitted.coding] {
        family.levels.iter_mut().for_each(|level| level.level = if right { 1000.0 } else { -1000.0 });
    }
    World::with_figures(fitted, Preset::Calibrated, items)
}

/// Checks that a reply is read as right, or as wrong, by the grader and by agents.
#[track_caller]
fn check_read(item: &Item, reply: &str, right: bool) {
    if let Key::Code { prompt, .. } = item.key() {
        assert_eq!(grade(item, reply).verdict, Verdict::MustRun);
        let program = Program::new(item, reply).expect("the reply holds code");
        let code = grade(item, reply).extracted.expect("the reply holds code");
        assert!(program.code.contains(prompt.trim_end()) && code.starts_with(prompt.trim_end()), "{reply}");
        assert_eq!(code.contains(solution(item).unwrap().trim_end()), right, "{reply}");
        assert_eq!(code.contains("raise ValueError("), !right, "{reply}");
        return;
    }
    let stated = extract(reply).expect("a reply states its answer");
    assert_eq!(grade(item, reply).verdict.is_right(), right, "{}: {reply}", item.task.question);
    assert_eq!(grade(item, &stated).verdict.is_right(), right, "{}: {stated}", item.task.question);
    assert!(grade(item, &stated).extracted.is_some(), "a wrong answer is an answer: {stated}");
}

#[test]
fn every_reply_is_read_as_the_world_decided() {
    for right in [true, false] {
        let world = certain(right, &ITEMS);
        for set in SetName::PUBLIC {
            let items = items_of(set);
            assert!(items.len() >= 20, "{set}");
            for item in &items {
                for seed in 0..9 {
                    let asked = Asked { seed, level: seed as usize % 3, ..Asked::default() };
                    check_read(item, &asked.of(&world, item).text, right);
                    let alone = Asked { duty: "Say only the answer.".into(), ..asked };
                    check_read(item, &alone.of(&world, item).text, right);
                }
            }
        }
    }
}

#[test]
fn agents_that_read_others_state_an_answer_too() {
    let world = World::new(Preset::Teams, &*ITEMS);
    for item in &*ITEMS {
        let readings: Vec<_> = (0..3).map(|seed| Asked { seed, ..Asked::default() }.of(&world, item).text).collect();
        for base in ["solver", "expert", "critic", "verifier", "judge", "summariser", "programmer"] {
            let reply = Asked { base, readings: readings.clone(), ..Asked::default() }.of(&world, item).text;
            check_read(item, &reply, is_right(item, &reply));
        }
    }
}

#[test]
fn programs_of_one_name_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let lines = |lines: [serde_json::Value; 2]| lines.map(|line| line.to_string()).join("\n");
    let head = |number: &str| format!("def add(x):\n    \"\"\" Add {number} to x.\n    \"\"\"\n");
    let test = |number: u32| format!("def check(candidate):\n    assert candidate(1) == {}\n", number + 1);
    let one = |number: u32, word: &str| {
        let body = format!("    return x + {number}\n");
        serde_json::json!({"task_id": format!("HumanEval/{number}"), "prompt": head(word), "entry_point": "add",
            "canonical_solution": body, "test": test(number)})
    };
    let variant = |number: u32, word: &str| {
        serde_json::json!({"name": format!("HumanEval_{number}_add"), "language": "py", "prompt": head(word) + "    # typed\n",
            "entry_point": "add", "test": test(number)})
    };
    std::fs::create_dir(folder.path().join("humaneval")).unwrap();
    let write = |name: &str, text: String| std::fs::write(folder.path().join("humaneval").join(name), text).unwrap();
    write("HumanEval.jsonl", lines([one(53, "a few"), one(85, "many")]));
    write("humaneval-py.jsonl", lines([variant(53, "a few"), variant(85, "many")]));
    let source = lemon_task::Source::Folder(folder.path().to_owned());
    let mut items = lemon_task::load(&source, SetName::HumanEval, "test").unwrap().items;
    items.extend(lemon_task::load(&source, SetName::HumanEvalPy, "test").unwrap().items);
    let world = certain(true, &items);
    let replies: Vec<String> = items.iter().map(|item| Asked::default().of(&world, item).text).collect();
    for (at, number) in [53, 85, 53, 85].into_iter().enumerate() {
        assert!(replies[at].contains(&format!("return x + {number}\n")), "{}", replies[at]);
    }
}

#[test]
fn a_program_without_a_published_solution_is_left_out() {
    let items = items_of(SetName::HumanEvalPy);
    let world = World::new(Preset::Calibrated, &items);
    assert_eq!(world.skipped(), items.len());
    assert_eq!(world.solo(&items[0].task.question, 0), None);
}

/// The mean length of replies, by family and level.
fn mean_length(world: &World, family: TaskFamily, level: usize) -> f64 {
    let items = || ITEMS.iter().filter(|item| TaskFamily::of(item) == family);
    let lengths: Vec<usize> = items()
        .flat_map(|item| (0..60).map(move |seed| (seed, item)))
        .map(|(seed, item)| Asked { seed, level, ..Asked::default() }.of(world, item).text.len())
        .collect();
    lengths.iter().sum::<usize>() as f64 / lengths.len() as f64
}

#[test]
fn replies_are_as_long_as_those_on_record() {
    let world = World::new(Preset::Calibrated, &*ITEMS);
    for family in [TaskFamily::Reckoning, TaskFamily::Knowing, TaskFamily::Coding] {
        for (level, figures) in Fitted::shipped().family(family).levels.iter().enumerate() {
            let ratio = mean_length(&world, family, level) / figures.characters;
            // Programs are as long as they are, which no draw can shorten.
            let bounds = if family == TaskFamily::Coding { 0.97..1.1 } else { 0.97..1.03 };
            assert!(bounds.contains(&ratio), "{family:?} {}: {ratio:.3} of the record", LEVELS[level]);
        }
    }
}

#[test]
fn an_answer_alone_is_short() {
    let world = World::new(Preset::Calibrated, &*ITEMS);
    for item in ITEMS.iter().filter(|item| !is_code(item)) {
        for duty in ["Say only the answer.", "Answer without explanation."] {
            let reply = Asked { duty: duty.into(), ..Asked::default() }.of(&world, item);
            assert!(reply.text.len() < 80 && reply.text.starts_with("Answer: "), "{}", reply.text);
        }
    }
}

#[test]
fn a_reply_that_does_not_fit_is_cut_and_costs_what_it_may() {
    let world = World::new(Preset::Calibrated, &*ITEMS);
    for item in &*ITEMS {
        let full = Asked::default().of(&world, item);
        let length = full.usage.tokens_out;
        let fits = Asked { max_tokens: length, ..Asked::default() };
        assert_eq!(fits.of(&world, item), full, "a reply that just fits");
        let max_tokens = length - 1;
        let cut = ask(&world, &Asked { max_tokens, ..Asked::default() }.request(item)).unwrap_err();
        assert_eq!(cut.failure.kind, FailureKind::Truncated);
        let usage = Usage { tokens_out: max_tokens, ..full.usage };
        assert_eq!(cut.cost, FailedCost::Known(usage));
        assert!(!cut.worth_retrying());
        let partial = cut.partial.unwrap();
        assert!(full.text.starts_with(&partial) && partial.len() < full.text.len());
    }
}

#[test]
fn a_longer_reply_takes_longer_and_a_larger_model_too() {
    let world = World::new(Preset::Calibrated, &*ITEMS);
    for item in &*ITEMS {
        for (level, speed) in Preset::Calibrated.choices().speed.into_iter().enumerate() {
            let reply = Asked { level, ..Asked::default() }.of(&world, item);
            let Usage { tokens_in, tokens_out, .. } = reply.usage;
            let expected = 0.2 + tokens_in as f64 / 4000.0 + tokens_out as f64 / speed;
            assert!((reply.simulated_s.unwrap() - expected).abs() < 1e-9);
            assert_eq!(tokens_out, (reply.text.len() as u64).div_ceil(4));
            assert_eq!(reply.model, Some(format!("sim-{}", LEVELS[level])));
        }
    }
}

/// Answers as people write them into files of their own.
fn any_answer() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        any::<i32>().prop_map(Into::into),
        (-1000i32..1000, 1i32..100).prop_map(|(a, b)| (f64::from(a) / f64::from(b)).into()),
        "-?[0-9]{1,9}(\\.[0-9]{1,3})?%?".prop_map(Into::into),
        "[1-9]/[1-9]".prop_map(Into::into),
        "(yes|no|unknown|something else|[a-zé]{2,9}( [a-z]{2,9})?)".prop_map(Into::into),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn right_is_right_and_wrong_is_wrong_whatever_is_asked(
        asked in prop::collection::vec(("[ -~]{1,60}|[0-9 .,]{1,30}|.{1,30}", any_answer()), 1..6),
        seed: u64,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.jsonl");
        let line = |(at, (question, answer)): (usize, &(String, serde_json::Value))| {
            serde_json::json!({"question": format!("{at}: {question}"), "answer": answer}).to_string()
        };
        let lines: Vec<String> = asked.iter().enumerate().map(line).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let Ok(set) = load_jsonl(&path) else { return Ok(()) };
        for right in [true, false] {
            let world = certain(right, &set.items);
            for item in &set.items {
                let reply = Asked { seed, level: seed as usize % 3, ..Asked::default() }.of(&world, item).text;
                check_read(item, &reply, right);
            }
        }
    }
}
