//! The roster as the scripts take and return it.

use std::time::Duration;

use redis::ScriptInvocation;

use crate::fleet::roster::{Member, Roster, RosterChange};
use crate::redis::LogIdentity;

/// Version, view, names and values of the hash, whether instances are registered that do not enrol, and when it was
/// made, in milliseconds of the server's clock.
pub(super) type RosterAnswer = (String, u64, Vec<(String, String)>, u8, u64);

/// `keeps_all`: the server evicts nothing. One that may evict the roster may hide a member.
pub(super) fn parse((version, view, fields, strangers, born): RosterAnswer, now: u64, keeps_all: bool) -> Roster {
    let texts = || fields.iter().filter(|(name, _)| !matches!(name.as_str(), "log" | "view" | "version" | "born"));
    let members: Vec<Member> = texts().filter_map(|(name, text)| Member::parse(name, text)).collect();
    // A later release may write other members: nobody here knows what they announce.
    let knows_all = members.len() == texts().count();
    Roster {
        version,
        view,
        age: Duration::from_millis(now.saturating_sub(born)),
        members,
        has_strangers: strangers == 1 || !keeps_all || !knows_all,
    }
}

/// What the script takes behind identity and member. `log`: the log of the connection.
pub(super) fn add_arguments(script: &mut ScriptInvocation<'_>, change: RosterChange, log: LogIdentity) {
    match change {
        RosterChange::Enrol { terms, confirmed, admitted_in } => {
            let is_descendant = admitted_in.is_some_and(|before| before != log);
            script.arg("enrol").arg(super::millis(terms.lease)).arg(super::millis(terms.window));
            script.arg(confirmed_in(confirmed, log)).arg(u8::from(is_descendant))
        }
        RosterChange::Admit => script.arg("admit"),
        RosterChange::Report(_) => script.arg("report"),
        RosterChange::Remove(writer, serial) => script.arg("remove").arg(writer.to_string()).arg(serial),
        RosterChange::Leave => script.arg("leave"),
    };
}

/// What is confirmed of this log; views of another one say nothing.
fn confirmed_in(confirmed: Option<(LogIdentity, u64)>, log: LogIdentity) -> u64 {
    confirmed.filter(|(of, _)| *of == log).map_or(0, |(_, view)| view)
}
