//! Each field that is declared is read, is in the reference, and is in the schema.

use serde_json::{Map, Value, json};

use crate::field_names::{AddressOption, BlockField, FieldName, FileField, LimitField, QueueField};
use crate::{Config, ConfigError};

const GUIDE: &str = include_str!("../../docs/configuration.md");
const SCHEMA: &str = include_str!("../../docs/limits.schema.json");

fn names<F: FieldName>() -> Vec<&'static str> {
    F::ALL.iter().map(|field| field.name()).collect()
}

fn read(config: &Value) -> Result<Config, ConfigError> {
    Config::from_text("limits.json", &config.to_string())
}

/// Configurations in which a field has this value; each is a place where the field may stand.
fn places(field: &str, value: &Value) -> [Value; 5] {
    let with = |mut fields: Value| {
        let table = fields.as_object_mut().unwrap();
        table.insert(field.to_owned(), value.clone());
        fields
    };
    let limits = |limit: Value| json!({"limits": {"a": limit}});
    let with_address =
        |address: Value| json!({"limits": {"a": "5 per hour"}, "client_address": address});
    [
        with(json!({"limits": {"a": "5 per hour"}})),
        with_address(with(json!({}))),
        limits(with(json!({"quota": "5 per hour"}))),
        limits(json!({"quota": "5 per hour", "queue": with(json!({}))})),
        limits(json!({"quota": "5 per hour", "block_after": with(json!({}))})),
    ]
}

/// Each field gets a value that no field can have: a mistake that names it shows that it is read.
#[track_caller]
fn each_is_read<F: FieldName>(place: usize, table: &str) {
    for field in F::ALL {
        let config = &places(field.name(), &json!({}))[place];
        let error = read(config).unwrap_err().to_string();
        let name = format!("`{table}{}`", field.name());
        let is_told = error.contains(&format!("{name} is a table"))
            || error.contains(&format!("{name} is empty"))
            || error.contains(&format!("{name} has no "));
        // A table of its own, all of whose fields may be absent.
        let is_table = field.name() == "client_address";
        assert!(is_told || is_table, "{name}: {error}");
        assert!(!error.contains("there is no field"), "{error}");
    }
}

#[test]
fn each_field_is_read() {
    assert!(read(&places("client_address", &json!({}))[0]).is_ok());
    for field in FileField::ALL.iter().filter(|field| **field != FileField::ClientAddress) {
        let error = read(&places(field.name(), &json!({}))[0]).unwrap_err().to_string();
        assert!(error.contains(&format!("`{}` is ", field.name())), "{error}");
    }
    each_is_read::<AddressOption>(1, "client_address.");
    each_is_read::<LimitField>(2, "");
    each_is_read::<QueueField>(3, "queue.");
    each_is_read::<BlockField>(4, "block_after.");
}

/// The names in the first cells of the tables below a heading, in their order.
fn reference(heading: &str) -> Vec<&'static str> {
    let (_, rest) = GUIDE.split_once(&format!("\n### {heading}\n")).unwrap();
    let section = rest.split("\n##").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap()).collect()
}

#[test]
fn the_reference_has_each_field_and_no_other() {
    assert_eq!(reference("The file"), names::<FileField>());
    assert_eq!(reference("A limit"), names::<LimitField>());
    assert_eq!(reference("The address of clients"), names::<AddressOption>());
    assert_eq!(reference("A queue"), names::<QueueField>());
    assert_eq!(reference("Blocks"), names::<BlockField>());
}

fn schema() -> Value {
    serde_json::from_str(SCHEMA).unwrap()
}

/// The properties of a table of the schema.
fn properties(table: &str) -> Map<String, Value> {
    let schema = schema();
    let table = if table.is_empty() { &schema } else { &schema["$defs"][table] };
    assert_eq!(table["additionalProperties"], json!(false));
    table["properties"].as_object().unwrap().clone()
}

#[test]
fn the_schema_has_each_field_and_no_other() {
    #[track_caller]
    fn has<F: FieldName>(table: &str) {
        let mut declared = names::<F>();
        declared.sort_unstable();
        let properties = properties(table);
        let mut described: Vec<_> = properties.keys().map(String::as_str).collect();
        described.sort_unstable();
        assert_eq!(described, declared, "{table}");
    }
    has::<FileField>("");
    has::<LimitField>("limit");
    has::<AddressOption>("client_address");
    has::<QueueField>("queue");
    has::<BlockField>("block_after");
}

/// The words that a part of the schema allows, also in the parts that it refers to.
fn words(part: &Value) -> Vec<Value> {
    let schema = schema();
    let mut words = part["enum"].as_array().cloned().unwrap_or_default();
    if let Some(name) = part["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
        words.extend(self::words(&schema["$defs"][name]));
    }
    words.extend(part["oneOf"].as_array().into_iter().flatten().flat_map(self::words));
    words
}

/// The reader takes each word that the schema names. That the schema names each word of the reader
/// is seen by a word that is wrong: the error lists those that are right.
#[test]
fn the_schema_and_the_reader_know_the_same_words() {
    let mut compared = 0;
    for (place, table) in ["", "client_address", "limit", "queue"].into_iter().enumerate() {
        for (field, part) in properties(table) {
            let words = words(&part);
            for word in &words {
                let mut config = places(&field, word)[place].clone();
                let limit = &mut config["limits"]["a"];
                if field == "kind" {
                    *limit = json!({"rate": 5, "per": "1h", "kind": word});
                }
                if table == "queue" {
                    limit["queue"]["max_wait"] = json!("1s");
                }
                if let Err(error) = read(&config) {
                    panic!("{config}\n{error}");
                }
            }
            let wrong = &places(&field, &json!("wrong"))[place];
            let error = read(wrong).err().map(|error| error.to_string()).unwrap_or_default();
            let Some((_, list)) = error.split_once("(there are ") else { continue };
            let listed = list.split('"').skip(1).step_by(2);
            for word in listed {
                assert!(
                    words.contains(&json!(word)),
                    "{table} {field}: {word} is not in the schema"
                );
                compared += 1;
            }
        }
    }
    assert!(compared > 25, "{compared}");
}

/// The blocks of the guide in this format.
fn blocks(format: &str) -> Vec<&'static str> {
    let start = format!("\n```{format}\n");
    let blocks = GUIDE.split(&*start).skip(1);
    blocks.map(|block| block.split("\n```").next().unwrap()).collect()
}

#[test]
fn the_examples_of_the_guide_are_read_and_say_the_same_in_each_format() {
    let read = |format: &str| -> Vec<Config> {
        let blocks = blocks(format).into_iter();
        let name = format!("limits.{format}");
        blocks.map(|text| Config::from_text(&name, text).unwrap()).collect()
    };
    let [toml, json] = ["toml", "json"].map(read);
    assert!(toml.len() >= 2 && json.len() == 1);
    let limiter = tollgate::limiter::RateLimiter::in_memory();
    assert_eq!(toml[0].compare(&json[0], &limiter).to_string(), "nothing has changed");
    #[cfg(feature = "yaml")]
    assert_eq!(toml[0].compare(&read("yaml")[0], &limiter).to_string(), "nothing has changed");
}
