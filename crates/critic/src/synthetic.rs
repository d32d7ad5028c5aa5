//! Tasks for tests whose best team is known: easy ones need one program, hard ones several reasoners.

use crate::task::{RecordedTask, ScoredReply, SeenReply};
use lemon_exec::Form;
use lemon_num::Random;

/// So many word problems. The word `easy` or `hard` decides how often each level is right.
pub(crate) fn tasks(count: usize, seed: u64) -> Vec<RecordedTask> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|at| {
            let hard = random.chance(0.5);
            let kind = if hard { "hard puzzle about trains" } else { "easy sum of apples" };
            let question = format!("A {kind}: there are {} and {}. How many?", random.below(90), random.below(90));
            let rates = if hard { [0.0, 0.1, 0.6] } else { [0.3, 0.97, 0.9] };
            let mut level = |level: usize, count: usize, tokens: f64| -> Vec<ScoredReply> {
                (0..count)
                    .map(|at| {
                        let right = random.chance(rates[level]);
                        let answer = if right { "1".to_owned() } else { (2 + random.below(30)).to_string() };
                        let log_sure = Some(if right { -0.1 } else { -0.3 });
                        let seen = SeenReply { level, answer: Some(answer), log_sure, log_length: 5.0 };
                        ScoredReply { seen, right, tokens, greedy: at == 0 }
                    })
                    .collect()
            };
            let replies = [level(0, 1, 30.0), level(1, 3, 100.0), level(2, 5, 300.0)];
            let (name, plain) = (format!("t{seed}-{at}"), Vec::new());
            RecordedTask { name, set: "sums".into(), question, form: Form::Number, replies, plain }
        })
        .collect()
}
