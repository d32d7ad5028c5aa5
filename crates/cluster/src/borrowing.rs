//! A worker's side of a budget that the coordinator keeps: it borrows what each call needs, and gives back what was not spent.

use crate::node::{Sessions, ask_session};
use crate::wire::{Amount, Answer, Ask, LeaseAccount, LeaseAsk};
use lemon_exec::SharedBudget;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// How often what is not used is given back, and a wish that has to wait is made again.
const TURN: Duration = Duration::from_millis(50);
/// How often a worker that holds something says so, though nothing has changed.
const ALIVE: Duration = Duration::from_secs(5);

/// The part of the budget of a coordinator that this process holds. `cancel` ends its runs when the budget is met.
pub(crate) fn borrow(
    sessions: Arc<Sessions>,
    session: String,
    node: String,
    cancel: CancellationToken,
) -> Arc<SharedBudget> {
    let (wishes, mut wished) = mpsc::unbounded_channel::<Amount>();
    let ask = Box::new(move |tokens, usd| {
        // The task ends with the process or the coordinator: then nothing is granted any more.
        let _ = wishes.send(Amount { tokens, usd });
    });
    let budget = Arc::new(SharedBudget::borrowed(ask, cancel));
    let held = budget.clone();
    tokio::spawn(async move {
        let mut account = LeaseAccount::default();
        let mut wish = 0;
        let mut told = (account, tokio::time::Instant::now());
        loop {
            let wanted = tokio::select! {
                wanted = wished.recv() => wanted,
                () = tokio::time::sleep(TURN) => None,
            };
            if wanted.is_some() {
                wish += 1;
            }
            loop {
                let (tokens, usd) = held.take_unused();
                account.returned.tokens += tokens;
                account.returned.usd += usd;
                let (tokens, usd) = held.spent();
                account.spent = Amount { tokens, usd };
                if wanted.is_none() && account == told.0 && told.1.elapsed() < ALIVE {
                    break;
                }
                let ask = Ask::Lease(LeaseAsk { node: node.clone(), wish, wanted, account });
                let Ok(answer) = ask_session(&sessions, &session, &ask).await else {
                    held.end(None);
                    return;
                };
                told = (account, tokio::time::Instant::now());
                match (answer, wanted) {
                    (Answer::Granted { .. }, Some(amount)) => {
                        account.granted.tokens += amount.tokens;
                        account.granted.usd += amount.usd;
                        held.borrow(amount.tokens, amount.usd);
                        break;
                    }
                    (Answer::Wait, _) => tokio::time::sleep(TURN).await,
                    (Answer::Met(met), _) => {
                        held.end(met.map(Into::into));
                        return;
                    }
                    (_, None) => break,
                    // No answer to a wish: the coordinator has no budget, which it said it has.
                    _ => {
                        held.end(None);
                        return;
                    }
                }
            }
        }
    });
    budget
}
