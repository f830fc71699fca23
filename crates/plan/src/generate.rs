//! A made-up log: a day, a few clients that ask often, and many that ask rarely.

use std::f64::consts::TAU;
use std::io::{self, Write};

use tollgate::Timestamp;

use super::format::Name;

const CLIENTS: u64 = 200_000;
const BEGIN: Timestamp = Timestamp::from_unix_seconds(1_767_225_600); // 1 January 2026
const DAY: f64 = 86_400_000_000.0;

/// Writes so many lines, with costs from 1 to 5 if they are plain; the same lines at every time.
pub(crate) fn generate(mut log: impl Write, lines: u64, name: Option<Name>) -> io::Result<()> {
    if !matches!(name, None | Some(Name::Nginx | Name::Plain)) {
        return Err(io::Error::other("--generate writes --format nginx or plain"));
    }
    let mut random = Random(1);
    for line in 0..lines {
        // Most requests come around noon.
        let part = line as f64 / lines as f64;
        let micros = DAY * (part + 0.1 * (TAU * part).sin());
        let at = Timestamp::from_micros(BEGIN.as_micros() + micros as i64);
        // One request in fifty is that of one scraper. Among the others, the share of a client falls
        // with its number.
        let (skew, cost) = (random.part(), 1 + random.next() % 5);
        let client = match random.next() % 50 {
            0 => 0,
            _ => 1 + (skew.powi(4) * CLIENTS as f64) as u64,
        };
        let [_, .., a, b, c] = client.to_be_bytes();
        match name {
            Some(Name::Plain) => writeln!(log, "{at} 10.{a}.{b}.{c} {cost}")?,
            _ => {
                let (text, size) = (at.to_string(), cost * 1_000);
                let time = text.get(11..19).unwrap_or("00:00:00");
                let request = format_args!("GET /item/{cost} HTTP/1.1");
                write!(log, "10.{a}.{b}.{c} - - [01/Jan/2026:{time} +0000] ")?;
                writeln!(log, r#""{request}" 200 {size} "-" "made-up/1.0""#)?;
            }
        }
    }
    log.flush()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to less than 1.
    fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
