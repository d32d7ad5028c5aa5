//! Checks two specifications: one that is a team, and one with two faults.
//!
//!     cargo run -p lemon --example 101_validate_a_spec
//!
//! `lemon::validate` is the only way to a `Plan`, and only a plan can be run. It reports every fault at once, each with its
//! place in the text and a hint.

const GOOD: &str = include_str!("team.yaml");

const BAD: &str = "\
agents:
  - id: solve
    base: solver
    capacity: huge
  - id: check
    base: verifier
    capacity: small
    after: [solver]
";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let plan = lemon::validate(GOOD)?;
    println!("a team of {} agents:", plan.agents().len());
    for agent in plan.agents() {
        println!("  {:10} {:20} capacity {:7} depth {}", agent.id, agent.role, agent.capacity, agent.depth);
    }

    let Err(error) = lemon::validate(BAD) else { return Err("the second text must be refused".into()) };
    println!("\n{error}");
    let lemon::Error::Spec(rejection) = &error else { return Err("expected the faults of a specification".into()) };
    let codes: Vec<&str> = rejection.errors().map(|fault| fault.code.as_str()).collect();
    println!("\nfault codes: {}", codes.join(", "));

    if plan.agents().len() != 3 || codes.len() != 2 {
        return Err(format!("expected 3 agents and 2 faults, found {} and {}", plan.agents().len(), codes.len()).into());
    }
    Ok(())
}
