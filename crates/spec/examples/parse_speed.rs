//! How long it takes to check a specification of 64 agents: `cargo run --release --example parse_speed`.

use lemon_spec::{Language, validate};
use std::hint::black_box;
use std::time::{Duration, Instant};

fn main() {
    let language = Language::default();
    let text = team(64);
    let mut times: Vec<Duration> = (0..2_000)
        .map(|_| {
            let start = Instant::now();
            let valid = black_box(validate(black_box(&text), &language)).is_ok();
            assert!(valid, "the example is a team");
            start.elapsed()
        })
        .collect();
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("{} bytes, 64 agents: fastest {:?}, median {:?}, 99 % below {:?}", text.len(), at(0), at(50), at(99));
}

/// A realistic team: layers of eight, each agent reading two of the layer before.
fn team(agents: usize) -> String {
    let mut text = String::from("agents:\n");
    for number in 0..agents {
        let parents = if number < 8 {
            String::new()
        } else {
            let layer = (number / 8 - 1) * 8;
            format!("agent-{}, agent-{}", layer + number % 8, layer + (number + 1) % 8)
        };
        text.push_str(&format!(
            "  - id: agent-{number}\n    base: solver\n    role: Percentages tutor\n    duty: Set up the equation for part \
             {number} of the task, solve it and state the unit.\n    capacity: medium\n    after: [{parents}]\n    share: answer\n"
        ));
    }
    text.push_str("answer: {from: [agent-56, agent-57], by: vote}\nnext: stop\n");
    text
}
