//! Runs that teach: a team on a task, and what it earned.

pub use lemon_rollout::{Earned, RolloutEnv as Trials};

#[cfg(test)]
mod tests {
    use crate::teach::fixture::Fixture as School;
    use lemon_rollout::Case;
    use lemon_task::{SetName, compose};

    const TEAM: &str = "agents:\n  - {id: a1, base: solver, capacity: large}\n";

    #[tokio::test]
    async fn a_run_earns_what_the_default_weights_say() {
        let school = School::new(&[SetName::Svamp], 5);
        for case in &school.cases {
            let earned = school.trials.run(case, TEAM, 1, &school.cancel).await.unwrap().unwrap();
            let cheap = 0.2 * (-4.5 * earned.tokens / 5000.0).exp();
            assert!((earned.reward - (earned.success + cheap - 0.005)).abs() < 1e-9, "{earned:?}");
            let mean = school.trials.mean(case, TEAM, &[1, 1], &school.cancel).await.unwrap().unwrap();
            assert!((mean.reward - earned.reward).abs() < 1e-12);
        }
        let refused = school.trials.run(&school.cases[0], "no team", 1, &school.cancel).await.unwrap().unwrap();
        assert_eq!((refused.reward, refused.success), (-1.0, 0.0));
    }

    #[tokio::test]
    async fn where_nobody_can_tell_nothing_was_earned() {
        let school = School::new(&[SetName::HumanEval], 2);
        let earned = |case: Case| async {
            let case = case;
            school.trials.run(&case, TEAM, 1, &school.cancel).await.unwrap()
        };
        assert_eq!(earned(school.cases[0].clone()).await, None);
        let stranger = compose(SetName::Gsm8k, 1, 77).remove(0);
        assert_eq!(earned(Case { set: "gsm8k".into(), item: stranger }).await, None);
        assert_eq!(school.trials.mean(&school.cases[0], TEAM, &[], &school.cancel).await.unwrap(), None);
        school.cancel.cancel();
        assert_eq!(school.trials.run(&school.cases[0], TEAM, 1, &school.cancel).await.unwrap(), None);
    }
}
