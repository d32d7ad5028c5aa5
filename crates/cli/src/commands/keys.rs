//! `lemon keys`: who may ask the server, and what each may spend.

use crate::args::{Cli, Endpoints, KeysCommand};
use crate::fault::Fault;
use crate::{print, print_data, print_json};
use lemon_server::keys::{KeyError, KeyLimits, KeyUse, Keys, Period};

pub fn keys(cli: &Cli, command: &KeysCommand) -> Result<u8, Fault> {
    let config = cli.config(&Endpoints::default())?;
    let keys = Keys::open(&Keys::path_beside(&config.store_path(cli.store.as_deref()))).map_err(fault)?;
    match command {
        KeysCommand::Add { name, budget_usd, budget_tokens, per, rpm } => {
            let limits = KeyLimits { budget_tokens: *budget_tokens, budget_usd: *budget_usd, per: *per, rpm: *rpm };
            let secret = keys.add(name, &limits).map_err(fault)?;
            eprintln!("the key `{name}` ({}); it is shown once:", told(&limits));
            print_data(&format!("{secret}\n"))
        }
        KeysCommand::List { json: true } => print_json(&keys.list().map_err(fault)?),
        KeysCommand::List { json: false } => {
            let list = keys.list().map_err(fault)?;
            if list.is_empty() {
                eprintln!("no keys yet");
            }
            for KeyUse { key, spent_tokens, spent_usd } in list {
                let spent = format!("{spent_tokens} tokens, {spent_usd:.4} USD spent");
                print(&format!("{:<20} {}; {spent}\n", key.name, told(&key.limits)))?;
            }
            Ok(0)
        }
        KeysCommand::Remove { name } => {
            keys.remove(name).map_err(fault)?;
            eprintln!("the key `{name}` is removed");
            Ok(0)
        }
    }
}

/// The limits in words.
fn told(limits: &KeyLimits) -> String {
    let tokens = limits.budget_tokens.map(|tokens| format!("{tokens} tokens"));
    let usd = limits.budget_usd.map(|usd| format!("{usd} USD"));
    let budget = tokens.into_iter().chain(usd).collect::<Vec<_>>().join(" and ");
    let budget = match (budget.is_empty(), limits.per) {
        (true, _) => "no budget".to_owned(),
        (false, Period::Ever) => format!("{budget} in all"),
        (false, per) => format!("{budget} per {per}"),
    };
    match limits.rpm {
        Some(rpm) => format!("{budget}, {rpm} requests a minute"),
        None => budget,
    }
}

fn fault(error: KeyError) -> Fault {
    let fault = Fault::new(&error);
    match error {
        KeyError::Unknown(_) => fault.hint("`lemon keys list` shows their names"),
        KeyError::Taken(_) => fault.hint("choose another name, or remove that key first"),
        _ => fault,
    }
}
