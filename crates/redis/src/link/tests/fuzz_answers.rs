//! Any bytes as an answer: the result is the value that they encode, or an error without secrets,
//! and takes little memory.

use std::io::Cursor;
use std::sync::LazyLock;

use ::redis::{Parser, RedisError, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::runtime::Runtime;
use tollgate_testing::fuzz::bytes::{draws_each, fields};
use tollgate_testing::fuzz::field::Field;
use tollgate_testing::fuzz::seeds::{Seed, seeds};

use super::super::sentinel;
use super::super::server::Server;
use super::super::slot_map::SlotMap;
use super::super::url::Topology;
use super::super::wire::Wire;
use super::super::{ConnectOptions, Servers, dial::Dial};
use super::fuzz_nodes::{a_master_is_read_or_left, master, slots, slots_are_read_or_left};
use super::fuzz_urls::shown;
use crate::script::ScriptReply;

/// The password of the login, which a server may quote.
const SECRET: &str = "Zq7word";

/// The bytes that a server may send without a complete answer, times the memory that the client
/// library takes for a byte.
const MOST: u64 = 60 * 64 * 1024;

static SERVER: LazyLock<Server> = LazyLock::new(|| {
    let url = format!("redis://:{SECRET}@127.0.0.1");
    match Servers::single(&url, &ConnectOptions::default()) {
        Ok(Servers(Topology::One(Dial::Server(server)))) => Server::clone(&server),
        other => panic!("{other:?}"),
    }
});

/// A server that reads a command, greets, reads a command, sends these bytes, and closes the
/// connection.
async fn say(mut stream: DuplexStream, bytes: &[u8]) {
    let mut asked = [0; 1024];
    for answer in [b"%0\r\n+OK\r\n+OK\r\n", bytes] {
        let read = stream.read(&mut asked).await.unwrap();
        assert!((1..asked.len()).contains(&read), "{read} bytes");
        stream.write_all(answer).await.unwrap();
    }
}

/// The result of a call if the server answers with these bytes and closes the connection.
fn told(runtime: &Runtime, bytes: &[u8]) -> Result<Value, RedisError> {
    runtime.block_on(async {
        let (own, theirs) = tokio::io::duplex(1 << 20);
        let call = async {
            let wire = Wire::open(own, SERVER.login()).await.unwrap();
            wire.send(&::redis::cmd("EVALSHA"), 0).await
        };
        tokio::join!(call, say(theirs, bytes)).0
    })
}

/// The first value that is no message, read without a connection; `None` if there is none, or if it
/// would be too long.
fn reference(bytes: &[u8]) -> Option<Value> {
    let (mut parser, mut rest) = (Parser::new(), Cursor::new(bytes));
    loop {
        match parser.parse_value(&mut rest) {
            Ok(Value::Push { .. }) => {}
            Ok(value) => return Some(value),
            Err(_) => return None,
        }
    }
}

/// The kind of result: a value of some kind, or an error of the server or of the connection.
fn outcome(answer: &Result<Value, RedisError>) -> &'static str {
    match answer {
        Ok(Value::Array(parts)) => match &parts[..] {
            [Value::Int(_), init, Value::BulkString(stored), others @ ..]
                if ScriptReply::is_answer(
                    &Value::Array(parts.clone()),
                    stored.len() / 48 + others.len(),
                    *init != Value::Nil,
                ) =>
            {
                "script"
            }
            [Value::BulkString(_), Value::BulkString(_)]
                if sentinel::read_address(&Value::Array(parts.clone())).is_some() =>
            {
                "master"
            }
            [_, ..] if SlotMap::read(Value::Array(parts.clone()), "own").is_some() => "slots",
            _ => "value",
        },
        Ok(_) => "value",
        Err(error) if error.code().is_some() => "error",
        Err(_) => "lost",
    }
}

/// Whether a value has an error of the server, at the top or anywhere within.
fn holds_error(value: &Value) -> bool {
    let any =
        |all: &[(Value, Value)]| all.iter().any(|(one, two)| holds_error(one) || holds_error(two));
    match value {
        Value::ServerError(_) => true,
        Value::Array(all) | Value::Set(all) | Value::Push { data: all, .. } => {
            all.iter().any(holds_error)
        }
        Value::Map(all) => any(all),
        Value::Attribute { data, attributes } => holds_error(data) || any(attributes),
        _ => false,
    }
}

/// Makes a call, and checks what must hold for all answers.
#[track_caller]
fn checked(field: &Field) -> Result<Value, RedisError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bytes = field.bytes();
    let mut answer = None;
    let work = || answer = Some(told(&runtime, &bytes));
    let held = allocation_counter::measure(work).bytes_max;
    assert!(held < MOST, "{held} bytes for {field:?}");
    let answer = answer.unwrap();
    let slow = reference(&bytes);
    match &answer {
        // Compared as text, in which `NaN` equals itself.
        Ok(value) => assert_eq!(format!("{:?}", Some(value)), format!("{slow:?}"), "{field:?}"),
        Err(error) => {
            let is_said = slow.as_ref().is_some_and(holds_error);
            let is_too_long = bytes.len() > 64 * 1024;
            assert_eq!(error.code().is_some(), is_said && !is_too_long, "{error:?} for {field:?}");
            assert!(slow.is_none() || is_said || is_too_long, "{error:?} for {field:?}");
            let text = shown(&SERVER.error("lost".to_owned(), error.clone()));
            assert!(!text.contains(SECRET), "{text}");
            assert!(text.len() < 2_500 && !text.contains(char::is_control), "{text:?}");
        }
    }
    answer
}

fn answer_seeds() -> Vec<Seed> {
    seeds(include_str!("../../../../../tests/data/fuzz/redis_answer.txt"))
}

#[test]
fn seeds_of_answers_are_read_as_recorded() {
    for Seed { field, wanted } in answer_seeds() {
        let answer = checked(&field);
        assert_eq!(outcome(&answer), wanted, "{field:?}: {answer:?}");
        if let Ok(answer) = answer {
            slots_are_read_or_left(&answer);
            a_master_is_read_or_left(&answer);
        }
    }
}

const WORDS: [&str; 44] = [
    "\\r\\n",
    "*0\\r\\n",
    "*1\\r\\n",
    "*2\\r\\n",
    "*3\\r\\n",
    "*-1\\r\\n",
    "*1000000000\\r\\n",
    "*9223372036854775807\\r\\n",
    "$0\\r\\n\\r\\n",
    "$1\\r\\na\\r\\n",
    "$-1\\r\\n",
    "$4294967296\\r\\n",
    "$9\\r\\n127.0.0.1\\r\\n",
    "$4\\r\\n6379\\r\\n",
    ":0\\r\\n",
    ":1\\r\\n",
    ":-1\\r\\n",
    ":16383\\r\\n",
    ":9223372036854775808\\r\\n",
    "_\\r\\n",
    "#t\\r\\n",
    ",nan\\r\\n",
    "(123456789012345678901234567890\\r\\n",
    "+OK\\r\\n",
    "+a\\r\\n",
    "-ERR\\r\\n",
    "-ERR Zq7word\\r\\n",
    "-Zq7word\\r\\n",
    "-NOAUTH Authentication required.\\r\\n",
    "-MOVED 1 127.0.0.1:7000\\r\\n",
    "-ASK 1 :\\r\\n",
    "-ERR unknown command, with args beginning with: 'Zq7word'\\r\\n",
    "%1\\r\\n",
    "%1000000000\\r\\n",
    "|1\\r\\n",
    "~2\\r\\n",
    ">2\\r\\n",
    ">0\\r\\n",
    ">1\\r\\n+invalidate\\r\\n",
    "=7\\r\\ntxt:abc\\r\\n",
    "!5\\r\\nERR a\\r\\n",
    "!11\\r\\nERR Zq7word\\r\\n",
    "Zq7word",
    "ERR ",
];

/// The value as a server sends it.
fn sent(value: &Value) -> Vec<u8> {
    let all = |mark: char, count: usize, all: &mut dyn Iterator<Item = &Value>| {
        let parts: Vec<u8> = all.flat_map(sent).collect();
        [format!("{mark}{count}\r\n").into_bytes(), parts].concat()
    };
    match value {
        Value::Int(number) => format!(":{number}\r\n").into_bytes(),
        Value::Double(number) => format!(",{number}\r\n").into_bytes(),
        Value::SimpleString(text) => format!("+{text}\r\n").into_bytes(),
        Value::Okay => b"+OK\r\n".to_vec(),
        Value::BulkString(bytes) => {
            [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
        }
        Value::Array(parts) => all('*', parts.len(), &mut parts.iter()),
        Value::Set(parts) => all('~', parts.len(), &mut parts.iter()),
        Value::Map(pairs) => {
            all('%', pairs.len(), &mut pairs.iter().flat_map(|(name, value)| [name, value]))
        }
        _ => b"_\r\n".to_vec(),
    }
}

/// Bytes like the seeds, and answers as servers send them.
fn inputs() -> impl Strategy<Value = Field> {
    let init = prop_oneof![Just(Value::Nil), any::<i64>().prop_map(Value::Int)];
    let stored = prop_oneof![3 => Just(vec![0; 48]), 1 => vec(any::<u8>(), 0..100)];
    let others = prop_oneof![3 => (0..8_i64).prop_map(|count| (1..=count).collect()), 1 => vec(any::<i64>(), 0..8)];
    let script = (any::<i64>(), init, stored, others).prop_map(|(now, init, stored, others)| {
        let parts = [Value::Int(now), init, Value::BulkString(stored)].into_iter();
        Value::Array(parts.chain(others.into_iter().map(Value::Int)).collect())
    });
    let whole = prop_oneof![slots(), master(), script];
    prop_oneof![
        4 => fields(&answer_seeds(), &WORDS),
        1 => whole.prop_map(|answer| Field::from_bytes(&sent(&answer))),
    ]
}

#[test]
fn the_inputs_have_answers_of_every_kind() {
    draws_each(&inputs(), 6, |field| outcome(&checked(&field)));
}

proptest! {
    #[test]
    fn any_bytes_give_the_answer_that_they_encode_or_an_error(field in inputs()) {
        if let Ok(answer) = checked(&field) {
            slots_are_read_or_left(&answer);
            a_master_is_read_or_left(&answer);
        }
    }
}
