//! The playground as its visitors meet it.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use thirtyfour::Key;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tollgate::clock::SystemClock;
use tollgate_testing::dice::Dice;
use tollgate_testing::web;

use super::chromium::{Chromium, DEADLINE, installed};
use super::stage::Stage;

#[allow(dead_code, reason = "tests drive the parts, not `main`")]
#[path = "../../../../examples/playground/main.rs"]
pub(crate) mod example;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The verdicts of a lane, in the order of the requests.
async fn verdicts(chromium: &Chromium, lane: usize) -> Vec<String> {
    let marks = format!("playground.lanes[{lane}].marks.map((mark) => mark.verdict)");
    serde_json::from_value(chromium.value(&marks).await).unwrap()
}

#[tokio::test]
async fn the_burst_button_gives_200s_and_then_429s() {
    let (stage, chromium) = (Stage::start(), Chromium::start().await);
    stage.open(&chromium).await;
    assert_eq!(chromium.text("#numbers").await, "5 per 5 seconds, capacity 10");
    chromium.click("#burst").await;
    for (nth, lane) in ["token-bucket", "fixed-window"].into_iter().enumerate() {
        chromium.until(&format!("playground.lanes[{nth}].marks.length === 12")).await;
        let mut expected = vec!["admitted"; 10];
        expected.extend(["refused"; 2]);
        assert_eq!(verdicts(&chromium, nth).await, expected);
        let response = chromium.text(&format!("[data-lane={lane}] .response")).await;
        let lines: Vec<_> = response.lines().collect();
        assert_eq!(lines[0], "429 Too Many Requests");
        assert!(
            lines[1].starts_with(&format!("RateLimit-Policy: \"{lane}\";q=10;w=10")),
            "{response}"
        );
        assert!(lines[2].starts_with(&format!("RateLimit: \"{lane}\";r=0;t=")), "{response}");
        assert!(lines[3].starts_with("Retry-After: "), "{response}");
        let told = chromium.text(&format!("[data-lane={lane}] .agreement")).await;
        assert!(told.ends_with("all 12 predicted right"), "{told}");
    }
    assert_eq!(chromium.value("document.querySelectorAll('#rows tr.admitted').length").await, 20);
    assert_eq!(chromium.value("document.querySelectorAll('#rows tr.refused').length").await, 4);
    chromium.stop().await;
}

/// The text of the countdown of a lane.
async fn countdown(chromium: &Chromium, lane: &str) -> String {
    chromium.text(&format!("#{lane} .countdown")).await
}

/// Sends one request to both lanes, and returns what became of it in one of them.
async fn send_one(chromium: &Chromium, lane: usize) -> String {
    let before = verdicts(chromium, lane).await.len();
    chromium.click("#one").await;
    chromium.until(&format!("playground.lanes[{lane}].marks.length > {before}")).await;
    verdicts(chromium, lane).await.pop().unwrap()
}

#[tokio::test]
async fn the_countdown_reaches_zero_and_the_next_request_passes() {
    let (stage, chromium) = (Stage::start(), Chromium::start().await);
    stage.open(&chromium).await;
    assert_eq!(countdown(&chromium, "token-bucket").await, "now");
    chromium.click("#burst").await;
    // The bucket gains one a second.
    chromium
        .until("document.querySelector('#token-bucket .countdown').textContent !== 'now'")
        .await;
    for tenths in (1..=10).rev() {
        let told = countdown(&chromium, "token-bucket").await;
        assert_eq!(told, format!("in {}.{} s", tenths / 10, tenths % 10));
        if tenths == 1 {
            stage.step(&chromium, ms(99)).await;
            assert_eq!(send_one(&chromium, 0).await, "refused");
            stage.step(&chromium, ms(1)).await;
        } else {
            stage.step(&chromium, ms(100)).await;
        }
    }
    assert_eq!(countdown(&chromium, "token-bucket").await, "now");
    assert_eq!(send_one(&chromium, 0).await, "admitted");
    // The window gives all at once, at its edge.
    let told = countdown(&chromium, "fixed-window").await;
    let left: f64 = told.strip_prefix("in ").unwrap().strip_suffix(" s").unwrap().parse().unwrap();
    stage.play(&chromium, Duration::from_secs_f64(left - 0.2)).await;
    assert_eq!(send_one(&chromium, 1).await, "refused");
    stage.play(&chromium, ms(200)).await;
    assert_eq!(countdown(&chromium, "fixed-window").await, "now");
    assert_eq!(send_one(&chromium, 1).await, "admitted");
    chromium.stop().await;
}

/// Moves a slider, and waits until the server has the number.
async fn set(chromium: &Chromium, name: &str, value: u64) {
    let applied = chromium.value("Number(document.documentElement.dataset.applied)").await;
    let script = format!(
        "(() => {{ const slider = document.querySelector('[name={name}]'); slider.value = {value}; \
         slider.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    );
    chromium.value(&script).await;
    chromium.until(&format!("Number(document.documentElement.dataset.applied) > {applied}")).await;
}

#[tokio::test]
async fn browser_and_server_agree_over_a_random_session() {
    let (stage, chromium) = (Stage::start(), Chromium::start().await);
    stage.open(&chromium).await;
    let mut dice = Dice(7);
    for _ in 0..120 {
        match dice.below(8) {
            0..=2 => chromium.click("#one").await,
            3 => chromium.click("#burst").await,
            4 => {
                let sliders = [
                    ("rate", 1 + dice.below(30)),
                    ("period", 1 + dice.below(10)),
                    ("capacity", dice.below(41)),
                    ("cost", 1 + dice.below(5)),
                    ("queue", dice.below(2) * dice.below(31)),
                ];
                let (name, value) = sliders[dice.nth(&sliders)];
                set(&chromium, name, value).await;
            }
            _ => {
                let times = [1, 1 + dice.below(100), 1 + dice.below(4_000)];
                stage.step(&chromium, ms(times[dice.nth(&times)])).await;
            }
        }
    }
    stage.step(&chromium, ms(1)).await;
    let agreement = "playground.lanes.map((lane) => [lane.agreed, lane.differed])";
    let agreement: [[u64; 2]; 2] = serde_json::from_value(chromium.value(agreement).await).unwrap();
    let counts = "playground.lanes.map((lane) => Object.values(lane.counts))";
    let counts: [[u64; 3]; 2] = serde_json::from_value(chromium.value(counts).await).unwrap();
    for ([agreed, differed], counts) in agreement.into_iter().zip(counts) {
        assert_eq!(differed, 0, "of {agreed}");
        assert!(agreed > 100 && counts.iter().all(|count| *count >= 5), "{agreed}: {counts:?}");
    }
    assert_eq!(chromium.value("document.querySelectorAll('#rows .differs').length").await, 0);
    chromium.stop().await;
}

/// The controls that the keyboard reaches, in order: their ids or names.
async fn tab_through(chromium: &Chromium) -> Vec<String> {
    let mut reached = Vec::new();
    loop {
        chromium.press(Key::Tab).await;
        // A radio button is invisible, and its label shows the focus.
        let focus = "(() => { const it = document.activeElement; \
            if (it === document.body) return null; \
            const seen = it.type === 'radio' ? it.nextElementSibling : it; \
            return [it.id || it.name || it.className || it.tagName, getComputedStyle(seen).outlineStyle]; })()";
        let focus = chromium.value(focus).await;
        let Some([name, outline]) = serde_json::from_value::<Option<[String; 2]>>(focus).unwrap()
        else {
            return reached;
        };
        assert_eq!(outline, "solid", "{name} does not show that it has the focus");
        reached.push(name);
    }
}

#[tokio::test]
async fn the_keyboard_reaches_and_operates_every_control() {
    let (stage, chromium) = (Stage::start(), Chromium::start().await);
    stage.open(&chromium).await;
    let reached = tab_through(&chromium).await;
    let expected = "response response lesson-burst lesson-edge lesson-queue one burst steady burst \
        steady kind rate period capacity cost queue shards reset SUMMARY scroll";
    assert_eq!(reached, expected.split(' ').collect::<Vec<_>>());
    let controls = "document.querySelectorAll('button, input:enabled, summary').length";
    // One of three radio buttons is a stop.
    assert_eq!(chromium.value(controls).await, reached.len() - 3 + 2);

    let focus = async |control: &str| {
        chromium.value(&format!("document.querySelector('{control}').focus()")).await;
    };
    let shows = async |text: &str| {
        chromium
            .until(&format!("document.querySelector('#numbers').textContent === '{text}'"))
            .await;
    };
    focus("[name=rate]").await;
    chromium.press(Key::Right).await;
    shows("6 per 5 seconds, capacity 10").await;
    focus("[name=queue]").await;
    chromium.press(Key::End).await;
    shows("6 per 5 seconds, capacity 10, max_reserved 10").await;
    assert_eq!(
        chromium.value("document.querySelector('[name=queue]').ariaValueText").await,
        "30 s"
    );
    focus("[name=kind]:checked").await;
    chromium.press(Key::Right).await;
    chromium.press(Key::Right).await;
    shows("fixed window: 6 per 5 seconds, capacity 10, max_reserved 10").await;
    assert_eq!(chromium.value("document.querySelector('#token-bucket').clientHeight").await, 0);
    focus("#one").await;
    chromium.press(Key::Enter).await;
    chromium.press(' ').await;
    chromium.until("playground.lanes[1].marks.length === 2").await;
    assert_eq!(chromium.value("playground.lanes[0].marks.length").await, 0);
    focus("#steady").await;
    chromium.press(' ').await;
    chromium.until("playground.lanes[1].marks.length === 3").await;
    stage.play(&chromium, ms(1_000)).await;
    assert_eq!(verdicts(&chromium, 1).await.len(), 5);
    chromium.press(' ').await;
    stage.play(&chromium, ms(1_000)).await;
    assert_eq!(verdicts(&chromium, 1).await.len(), 5);
    chromium.stop().await;
}

/// Plays a lesson to its end, and returns what it concludes.
async fn lesson(stage: &Stage, chromium: &Chromium, name: &str) -> String {
    chromium.click(&format!("#lesson-{name}")).await;
    let button = format!("document.querySelector('#lesson-{name}')");
    chromium.until(&format!("{button}.ariaCurrent === 'true'")).await;
    for _ in 0..200 {
        if chromium.value(&format!("{button}.ariaCurrent")).await == Value::Null {
            return chromium.text("#note").await;
        }
        stage.play(chromium, ms(100)).await;
    }
    panic!("{name} does not end");
}

#[tokio::test]
async fn the_lessons_show_how_the_kinds_differ() {
    let (stage, chromium) = (Stage::start(), Chromium::start().await);
    stage.open(&chromium).await;
    assert_eq!(
        lesson(&stage, &chromium, "burst").await,
        "Of 28 requests, the bucket let 17 pass, one by one. The window let 16 pass, four at a time."
    );
    assert_eq!(
        lesson(&stage, &chromium, "edge").await,
        "Within a second, the window let 12 pass, twice its rate. The bucket let 7 pass, and never \
         gives more than it has."
    );
    assert_eq!(
        lesson(&stage, &chromium, "queue").await,
        "All have run and none was refused: one each second by the bucket, two at each edge by the \
         window."
    );
    for lane in 0..2 {
        let marks = format!("playground.lanes[{lane}].marks");
        let all_ran = format!("{marks}.length === 8 && {marks}.every((mark) => mark.ran)");
        chromium.until(&all_ran).await;
        let waits = format!("{marks}.map((mark) => Math.round(mark.run - mark.at))");
        let waits: Vec<u64> = serde_json::from_value(chromium.value(&waits).await).unwrap();
        let apart: Vec<_> = waits[1..].windows(2).map(|pair| pair[1] - pair[0]).collect();
        match lane {
            0 => assert_eq!(waits, [0, 0, 1_000, 2_000, 3_000, 4_000, 5_000, 6_000]),
            _ => assert_eq!(apart[1..], [0, 2_000, 0, 2_000, 0]),
        }
        // Each has waited as long as it was told at first.
        let timing = format!("{marks}.at(-1).run - {marks}.at(-1).at");
        assert_eq!(chromium.value(&format!("Math.round({timing})")).await, waits[7]);
    }
    chromium.stop().await;
}

/// On the clock of the machine, as visitors have it.
#[tokio::test]
async fn the_page_runs_in_real_time_also_without_motion() {
    let listener = example::listen(0).await.unwrap();
    let server = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, example::app(SystemClock::new())).await });
    let chromium = Chromium::start().await;
    for motion in ["no-preference", "reduce"] {
        let calm = json!({ "features": [{ "name": "prefers-reduced-motion", "value": motion }] });
        chromium.devtools("Emulation.setEmulatedMedia", calm).await;
        chromium.open(server, "/").await;
        chromium.until("document.querySelector('#clock').textContent.includes('known to')").await;
        chromium.click("#steady").await;
        let rows = "document.querySelectorAll('#rows tr').length";
        chromium.until(&format!("{rows} >= 6")).await;
        chromium.click("#steady").await;
        assert_eq!(chromium.value("document.querySelector('#steady').ariaPressed").await, "false");
        chromium.until("document.querySelector('#live').textContent.includes('admitted')").await;
        let label = "document.querySelector('#token-bucket .chart').ariaLabel";
        chromium.until(&format!("{label}.includes('tokens. In the last')")).await;
    }
    chromium.stop().await;
}

#[tokio::test]
async fn two_tabs_do_not_disturb_each_other() {
    let (stage, chromium) = (Stage::start(), Chromium::start().await);
    stage.open(&chromium).await;
    chromium.click("#burst").await;
    chromium.until("playground.lanes[1].marks.length === 12").await;
    let (first, curl) = (chromium.tab.window().await.unwrap(), chromium.text("#curl").await);
    let second = chromium.tab.new_tab().await.unwrap();
    chromium.tab.switch_to_window(second).await.unwrap();
    stage.open(&chromium).await;
    assert_ne!(chromium.text("#curl").await, curl);
    assert_eq!(chromium.text("#token-bucket .left-now").await, "10");
    assert_eq!(send_one(&chromium, 0).await, "admitted");
    assert_eq!(chromium.text("#token-bucket .left-now").await, "9");
    chromium.tab.close_window().await.unwrap();
    chromium.tab.switch_to_window(first).await.unwrap();
    assert_eq!(send_one(&chromium, 0).await, "refused");
    chromium.stop().await;
}

#[tokio::test]
async fn requests_of_other_clients_are_seen_until_the_tab_is_closed() {
    let (stage, chromium) = (Stage::start(), Chromium::start().await);
    stage.open(&chromium).await;
    let curl = chromium.text("#curl").await;
    let path = curl.split_once(&stage.address.to_string()).unwrap().1.to_owned();
    let reply = web::get(stage.address, &path).await;
    assert_eq!((reply.status.as_u16(), &*reply.body), (200, "done\n"));
    assert!(reply.field("ratelimit").unwrap().starts_with("\"token-bucket\";r=9;"));
    chromium.until("document.querySelectorAll('#rows tr').length === 1").await;
    assert!(chromium.text("#rows tr").await.contains("not sent by this page"));
    chromium.until("playground.lanes[0].bucket.remaining() === 9").await;
    // The browser has asked again, so it is right about its own.
    assert_eq!(send_one(&chromium, 0).await, "admitted");
    let agreement = "[playground.lanes[0].agreed, playground.lanes[0].differed]";
    assert_eq!(chromium.value(agreement).await, json!([1, 0]));

    chromium.tab.goto("about:blank").await.unwrap();
    // The server hears of it soon.
    let gone = async { while web::get(stage.address, &path).await.status != 404 {} };
    timeout(DEADLINE, gone).await.expect("the session ends");
    chromium.stop().await;
}

#[tokio::test]
async fn what_the_server_cannot_take_is_told_in_words() {
    let (stage, chromium) = (Stage::start(), Chromium::start().await);
    stage.open(&chromium).await;
    let settings = |rate: u64, shards: u64| {
        json!({ "settings": {
            "rate": rate, "period_ms": 1_000, "capacity": 1, "max_reserved": 0, "queue_ms": 0,
            "shards": shards, "cost": 1,
        } })
    };
    for (order, told) in [
        (
            settings(0, 1),
            "quota of 0 per second is empty (rate and period must both be more than zero",
        ),
        (settings(1, 0), "0 shards hold no tokens (use 1 or more)"),
        (json!({ "send": { "lane": "leaky", "ids": [1] } }), "there is no lane leaky"),
        (json!({ "send": { "lane": "token-bucket", "ids": vec![1; 300] } }), ""),
        (json!("sleep"), "unknown variant `sleep`"),
    ] {
        let ask = format!(
            "const socket = new WebSocket(`ws://${{location.host}}/socket`); \
             socket.onopen = () => socket.send(JSON.stringify({order})); \
             const heard = ({{ data }}) => {{ const event = JSON.parse(data); \
                 if (event.event === 'problem' || event.id) {{ socket.close(); done(event.text ?? ''); }} }}; \
             socket.onmessage = heard;"
        );
        let text = chromium.call(&ask).await.unwrap();
        assert!(text.as_str().unwrap().contains(told), "{text}");
    }
    chromium.stop().await;
}

/// So that visitors cannot fill the memory of the server.
#[tokio::test]
async fn only_so_many_tabs_are_served_at_once() {
    let server = web::serve(example::app(SystemClock::new())).await;
    let open = async || {
        let mut socket = TcpStream::connect(server).await.unwrap();
        let upgrade = "GET /socket HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\n\
            upgrade: websocket\r\nsec-websocket-version: 13\r\n\
            sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        socket.write_all(upgrade.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        socket.read_exact(&mut head).await.unwrap();
        let status: u16 = str::from_utf8(&head[9..]).unwrap().parse().unwrap();
        (status, socket)
    };
    let mut sockets = Vec::new();
    for _ in 0..example::MAX_SESSIONS {
        let (status, socket) = open().await;
        assert_eq!(status, 101);
        sockets.push(socket);
    }
    assert_eq!(open().await.0, 503);
    // A tab that is closed makes room.
    sockets.pop();
    let room = async { while open().await.0 != 101 {} };
    timeout(DEADLINE, room).await.expect("there is room again");
}

#[tokio::test]
async fn the_next_free_port_is_used() {
    let first = example::listen(0).await.unwrap().local_addr().unwrap();
    let taken = TcpListener::bind(first).await.unwrap();
    let next = example::listen(first.port()).await.unwrap().local_addr().unwrap();
    assert!((1..20).contains(&(next.port() - first.port())), "{first}, {next}");
    drop(taken);
}

/// The screens and themes in which the page is shown in `docs/playground`.
const SCREENS: [(&str, u32, u32, &str); 4] = [
    ("laptop-light", 1280, 800, "light"),
    ("laptop-dark", 1280, 800, "dark"),
    ("phone-light", 390, 844, "light"),
    ("phone-dark", 390, 844, "dark"),
];

/// What axe-core finds: barriers for readers by ear, by keyboard, or with weak eyes.
async fn barriers(chromium: &Chromium) -> Vec<String> {
    let file = installed("node_modules/axe-core/axe.min.js");
    let axe = std::fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!("{}: {error} (bash scripts/programs --install browser)", file.display())
    });
    chromium.tab.execute(axe, vec![]).await.unwrap();
    let run = "axe.run().then(({ violations }) => done(violations.flatMap(({ id, nodes }) => \
        nodes.map(({ target, failureSummary }) => `${id}: ${target}: ${failureSummary}`))))";
    serde_json::from_value(chromium.call(run).await.unwrap()).unwrap()
}

/// With `TOLLGATE_SCREENSHOTS`, as `scripts/screenshots` sets it, it keeps pictures of what it sees.
#[tokio::test]
async fn the_page_fits_a_laptop_and_a_phone_in_both_themes() {
    let (stage, chromium) = (Stage::start(), Chromium::start().await);
    stage.open(&chromium).await;
    chromium.click("#lesson-burst").await;
    chromium.until("playground.lanes[1].marks.length === 12").await;
    stage.play(&chromium, ms(7_000)).await;
    for (name, width, height, theme) in SCREENS {
        chromium.show(width, height, theme).await;
        chromium
            .until(&format!("matchMedia('(max-width: 900px)').matches === {}", width < 900))
            .await;
        chromium.value("playground.render()").await;
        let wide = chromium.value("document.documentElement.scrollWidth").await;
        assert_eq!(wide, width, "{name} scrolls sideways");
        assert_eq!(barriers(&chromium).await, [""; 0], "{name}");
        if let Some(folder) = std::env::var_os("TOLLGATE_SCREENSHOTS") {
            let file = Path::new(&folder).join(format!("{name}.png"));
            chromium.tab.screenshot(&file).await.unwrap();
        }
    }
    chromium.stop().await;
}
