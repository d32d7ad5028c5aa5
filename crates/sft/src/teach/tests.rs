//! What a team earned on a task, as teachers measure it.

use super::fixture::Fixture;
use lemon_rollout::Case;
use lemon_task::{SetName, compose};

const TEAM: &str = "agents:\n  - {id: a1, base: solver, capacity: large}\n";

#[tokio::test]
async fn a_run_earns_what_the_default_weights_say() {
    let fixture = Fixture::new(&[SetName::Svamp], 5);
    for case in &fixture.cases {
        let earned = fixture.env.run(case, TEAM, 1, &fixture.cancel).await.unwrap().unwrap();
        let cheap = 0.2 * (-4.5 * earned.tokens / 5000.0).exp();
        assert!((earned.reward - (earned.success + cheap - 0.005)).abs() < 1e-9, "{earned:?}");
        let mean = fixture.env.mean(case, TEAM, &[1, 1], &fixture.cancel).await.unwrap().unwrap();
        assert!((mean.reward - earned.reward).abs() < 1e-12);
    }
    let refused = fixture.env.run(&fixture.cases[0], "no team", 1, &fixture.cancel).await.unwrap().unwrap();
    assert_eq!((refused.reward, refused.success), (-1.0, 0.0));
}

#[tokio::test]
async fn an_ungradable_task_earns_nothing() {
    let fixture = Fixture::new(&[SetName::HumanEval], 2);
    let earned = |case: Case| async {
        let case = case;
        fixture.env.run(&case, TEAM, 1, &fixture.cancel).await.unwrap()
    };
    assert_eq!(earned(fixture.cases[0].clone()).await, None);
    let stranger = compose(SetName::Gsm8k, 1, 77).remove(0);
    assert_eq!(earned(Case { set: "gsm8k".into(), item: stranger }).await, None);
    assert_eq!(fixture.env.mean(&fixture.cases[0], TEAM, &[], &fixture.cancel).await.unwrap(), None);
    fixture.cancel.cancel();
    assert_eq!(fixture.env.run(&fixture.cases[0], TEAM, 1, &fixture.cancel).await.unwrap(), None);
}
