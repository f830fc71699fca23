//! The file of a dump: replaced in one step, private, and told from one that is not there.

use std::fs;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tollgate_testing::{START, admitted, remaining, store};

use super::{Folder, HOARD, dump_of, taken};
use tollgate::backend::Memory;
use tollgate::clock::ManualClock;
use tollgate::{DAY, Limit, MINUTE, Quota, RateLimiter};

#[test]
fn a_start_without_a_file_is_empty_and_the_next_goes_on() {
    let (folder, clock) = (Folder::new(), ManualClock::new(START));
    for start in 0..3 {
        let memory = Memory::new().max_keys(5_000).load_or_empty(folder.file()).unwrap();
        let (memory, limiter) = store(memory, &clock);
        assert_eq!(memory.len(), usize::from(start > 0));
        assert_eq!(taken(&limiter, 7), start);
        assert!(admitted(&limiter, &HOARD, 7, 1));
        memory.save_to(folder.file()).unwrap();
        assert_eq!(folder.names(), ["limits.dump"]);
    }
}

#[test]
fn a_file_that_is_damaged_or_empty_is_no_first_start() {
    let folder = Folder::new();
    let dump = dump_of(&Memory::new());
    for len in [0, 10, dump.len() - 1] {
        fs::write(folder.file(), &dump[..len]).unwrap();
        let error = Memory::new().load_or_empty(folder.file()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        let error = Memory::new().load_from(folder.file()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_file_can_be_read_by_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;

    let folder = Folder::new();
    let mode = || fs::metadata(folder.file()).unwrap().permissions().mode() & 0o777;
    let memory = Memory::new();
    memory.save_to(folder.file()).unwrap();
    assert_eq!(mode(), 0o600);
    fs::set_permissions(folder.file(), fs::Permissions::from_mode(0o644)).unwrap();
    memory.save_to(folder.file()).unwrap();
    assert_eq!(mode(), 0o600);
}

#[cfg(unix)]
#[test]
fn a_link_stays_and_the_file_to_which_it_leads_is_replaced() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    fs::write(elsewhere.file(), "an old dump").unwrap();
    std::os::unix::fs::symlink(elsewhere.file(), folder.file()).unwrap();
    Memory::new().save_to(folder.file()).unwrap();
    assert!(fs::symlink_metadata(folder.file()).unwrap().is_symlink());
    assert_eq!(folder.names(), ["limits.dump"]);
    assert_eq!(elsewhere.names(), ["limits.dump"]);
    assert!(Memory::new().load_from(elsewhere.file()).is_ok());
}

/// Drafts of processes that were killed are removed, and nothing else is.
#[test]
fn drafts_that_killed_processes_have_left_are_removed() {
    let folder = Folder::new();
    let left = ["limits.dump.1-2-3.draft", "limits.dump.88-1700000000000000000-0.draft"];
    let others = [
        "limits.dump.-2-3.draft",
        "limits.dump.1-2.draft",
        "limits.dump.1-2-3-4.draft",
        "limits.dump.1-2-x.draft",
        "limits.dump.1-2-3.draft.old",
        "limits.dump.draft",
        "other.dump.1-2-3.draft",
        "x-limits.dump.1-2-3.draft",
    ];
    // A process may work on a draft that is as young as this.
    let young = "limits.dump.4-5-6.draft";
    for name in left.iter().chain(&others).chain([&young]) {
        fs::write(folder.0.join(name), "a draft").unwrap();
        folder.age(name, if *name == young { 9 * MINUTE } else { 11 * MINUTE });
    }
    Memory::new().save_to(folder.file()).unwrap();
    let mut wanted: Vec<_> = others.into_iter().chain([young, "limits.dump"]).collect();
    wanted.sort_unstable();
    assert_eq!(folder.names(), wanted);

    folder.age(young, 11 * MINUTE);
    Memory::new().save_to(folder.file()).unwrap();
    assert!(!folder.names().contains(&young.to_owned()));
}

/// Several stores save to one file, which they should not, and several threads save one of them:
/// the file is a whole dump at any time.
#[test]
fn a_file_is_a_whole_dump_at_any_time() {
    let (folder, clock) = (Folder::new(), ManualClock::new(START));
    let (first, limiter) = store(Memory::new().max_keys(5_000), &clock);
    (0..2_000).for_each(|key| assert!(admitted(&limiter, &HOARD, key, 3)));
    let (second, _) = store(Memory::new().max_keys(5_000), &clock);
    second.save_to(folder.file()).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut is_last = false;
            while !is_last {
                is_last = over.load(Ordering::Acquire);
                let loaded = Memory::new().max_keys(5_000).load_from(folder.file()).unwrap();
                assert!([0, 2_000].contains(&loaded.len()), "{}", loaded.len());
            }
        });
        let savers = [&first, &second, &first].map(|memory| {
            scope.spawn(|| (0..12).for_each(|_| memory.save_to(folder.file()).unwrap()))
        });
        let ended = savers.map(|saver| saver.join());
        over.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert_eq!(folder.names(), ["limits.dump"]);
}

/// A plan was changed while the service was down.
#[test]
fn numbers_that_change_between_two_processes_keep_what_was_used() {
    let folder = Folder::new();
    let clock = ManualClock::new(START);
    let reports = |rate| Limit::try_new("reports", Quota::token_bucket(rate, DAY)).unwrap();
    let (memory, limiter) = store(Memory::new(), &clock);
    assert!(admitted(&limiter, &reports(3), 1, 3));
    memory.save_to(folder.file()).unwrap();
    for (rate, left) in [(3, 0), (5, 2), (1, 0), (100, 97)] {
        let (_, limiter) = store(Memory::new().load_from(folder.file()).unwrap(), &clock);
        assert_eq!(remaining(&limiter, &reports(rate), 1), left, "{rate}");
    }
}

#[test]
fn a_limiter_that_shares_its_store_can_be_saved() {
    let memory = std::sync::Arc::new(Memory::new().clock(ManualClock::new(START)));
    let limiter = RateLimiter::new(std::sync::Arc::clone(&memory));
    assert!(admitted(&limiter, &HOARD, 1, 5));
    let loaded = Memory::new().load(dump_of(&memory).as_slice()).unwrap();
    let (_, limiter) = store(loaded, &ManualClock::new(START));
    assert_eq!(taken(&limiter, 1), 5);
}
