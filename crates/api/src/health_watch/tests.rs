use super::*;

fn issue(code: &str, health: Health, what: &str) -> HealthIssue {
    HealthIssue {
        health,
        code: code.into(),
        target: "disk 1".into(),
        since_unix_s: 1,
        server: None,
        what: what.into(),
        meaning: String::new(),
        action: String::new(),
    }
}

fn report(issues: Vec<HealthIssue>) -> HealthReport {
    HealthReport {
        health: issues.iter().map(|issue| issue.health).max().unwrap_or_default(),
        issues,
        ..HealthReport::default()
    }
}

fn codes(issues: &[&HealthIssue]) -> Vec<String> {
    issues.iter().map(|issue| issue.code.clone()).collect()
}

#[test]
fn an_issue_is_told_when_it_comes_and_when_it_goes_and_not_in_between() {
    let mut told = Told::default();
    let lost = report(vec![issue("disk_lost", Health::Unhealthy, "lost")]);
    assert_eq!(codes(&told.changes(&lost).0), ["disk_lost"]);
    told.update(&lost);
    let (appeared, resolved) = told.changes(&lost);
    assert!(appeared.is_empty() && resolved.is_empty());
    let well = report(Vec::new());
    let (appeared, resolved) = told.changes(&well);
    assert!(appeared.is_empty());
    assert_eq!(codes(&resolved), ["disk_lost"]);
}

#[test]
fn figures_within_an_issue_do_not_make_it_new_but_its_severity_does() {
    let mut told = Told::default();
    told.update(&report(vec![issue("disk_corrupt", Health::Warning, "3 blocks")]));
    let (more, worse) =
        (issue("disk_corrupt", Health::Warning, "4"), issue("disk_corrupt", Health::Unhealthy, "4"));
    assert!(told.changes(&report(vec![more])).0.is_empty());
    assert_eq!(codes(&told.changes(&report(vec![worse])).0), ["disk_corrupt"]);
}

#[tokio::test]
async fn a_webhook_that_refuses_has_not_been_told() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let mut got = Vec::new();
        for status in ["500 No", "204 Taken"] {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut part = [0; 4096];
            while !request.ends_with(b"}") {
                let len = stream.read(&mut part).unwrap();
                assert!(len > 0, "the request ends");
                request.extend_from_slice(&part[..len]);
            }
            stream.write_all(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").as_bytes()).unwrap();
            got.push(String::from_utf8(request).unwrap());
        }
        got
    });
    let webhook = Webhook { url, authorities: None };
    let issues = [issue("disk_lost", Health::Unhealthy, "lost")];
    let notice = Notice {
        server: "FILER",
        at_unix_s: 5,
        health: Health::Unhealthy,
        appeared: vec![&issues[0]],
        resolved: Vec::new(),
        issues: &issues,
        test: false,
    };
    let body = serde_json::to_string(&notice).unwrap();
    assert!(post(webhook.clone(), body.clone()).await.unwrap_err().contains("500"));
    post(webhook, body).await.unwrap();
    let got = server.join().unwrap();
    let body = got[1].split_once("\r\n\r\n").unwrap().1;
    let sent: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!((&sent["server"], &sent["appeared"][0]["code"]), (&"FILER".into(), &"disk_lost".into()));
}

#[test]
fn of_a_webhook_only_its_server_is_logged() {
    assert_eq!(server_of("https://hooks.example:8443/services/SECRET?token=SECRET"), "hooks.example:8443");
    assert_eq!(server_of("http://user:SECRET@hooks.example"), "hooks.example");
    assert_eq!(server_of("https://hooks.example?token=SECRET"), "hooks.example");
}

#[tokio::test]
async fn an_issue_that_came_and_went_while_the_webhook_was_silent_is_told() {
    let (outbox, gone) = (Outbox::default(), Notify::new());
    let (sent, mut got) = tokio::sync::mpsc::unbounded_channel();
    let (is_first, asked) = (std::sync::atomic::AtomicBool::new(true), Notify::new());
    let (gone, asked) = (&gone, &asked);
    let post = |body: String| {
        let (is_first, sent) = (is_first.swap(false, std::sync::atomic::Ordering::Relaxed), sent.clone());
        async move {
            if is_first {
                asked.notify_one();
                gone.notified().await;
                return Err("silence".to_owned());
            }
            let notice = serde_json::from_str::<serde_json::Value>(&body).unwrap();
            sent.send(notice).map_err(|error| error.to_string())
        }
    };
    let changes = async {
        let (slow, lost) =
            (issue("disk_slow", Health::Warning, "slow"), issue("disk_lost", Health::Unhealthy, "lost"));
        let note = |appeared: &[&HealthIssue], resolved: &[&HealthIssue], issues: Vec<HealthIssue>| {
            outbox.pending().note(appeared, resolved, &report(issues));
            outbox.filled.notify_one();
        };
        note(&[&slow], &[], vec![slow.clone()]);
        asked.notified().await;
        note(&[&lost], &[], vec![slow.clone(), lost.clone()]);
        note(&[], &[&lost], vec![slow.clone()]);
        gone.notify_one();
        got.recv().await.expect("a notice")
    };
    let told = tokio::select! {
        told = changes => told,
        () = deliver(&outbox, "FILER", |notice| notice.json(), QUICK, post) => unreachable!("it delivers for ever"),
    };
    let codes = |key: &str| -> Vec<String> {
        let issues = told[key].as_array().unwrap();
        issues.iter().map(|issue| issue["code"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(codes("appeared"), ["disk_lost", "disk_slow"]);
    assert_eq!(codes("resolved"), ["disk_lost"]);
    assert_eq!(codes("issues"), ["disk_slow"]);
}

/// Without the waits that people need.
const QUICK: Pace = Pace { pause: Duration::ZERO, retry_min: Duration::from_millis(1) };

#[test]
fn a_mail_says_in_its_subject_what_is_new_and_below_what_to_do() {
    let lost = issue("disk_lost", Health::Unhealthy, "disk 1 is\r\nBcc: all@example.com lost");
    let mut pending = Pending::default();
    pending.note(&[&lost], &[], &report(vec![lost.clone()]));
    let letter = pending.notice("FILER").letter();
    let (subject, text) = letter.split_once('\n').unwrap();
    assert_eq!(subject, "[cenote] FILER is unhealthy: disk 1 is  Bcc: all@example.com lost");
    assert!(text.contains("New:\n\n* disk 1") && !text.contains("Resolved"), "{text}");
}

#[tokio::test]
async fn a_pause_follows_each_notice_and_what_flaps_meanwhile_is_in_the_next() {
    let (outbox, sent) = (Outbox::default(), std::sync::atomic::AtomicUsize::new(0));
    let post = |_| {
        sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        std::future::ready(Ok(()))
    };
    let flapping = async {
        let slow = issue("disk_slow", Health::Warning, "slow");
        for _ in 0..20 {
            outbox.pending().note(&[&slow], &[&slow], &report(Vec::new()));
            outbox.filled.notify_one();
            tokio::task::yield_now().await;
        }
    };
    let pace = Pace { pause: Duration::from_secs(3600), ..QUICK };
    tokio::select! {
        () = flapping => {}
        () = deliver(&outbox, "FILER", |notice| notice.json(), pace, post) => unreachable!("it delivers for ever"),
    }
    assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert!(!outbox.pending().is_empty());
}

#[tokio::test]
async fn a_receiver_that_was_replaced_is_not_waited_for() {
    let (outbox, tries) = (Outbox::default(), std::sync::atomic::AtomicUsize::new(0));
    let delivered = Notify::new();
    let post = |_| {
        let is_first = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        if !is_first {
            delivered.notify_one();
        }
        std::future::ready(if is_first { Err("nobody is there".to_owned()) } else { Ok(()) })
    };
    let lost = issue("disk_lost", Health::Unhealthy, "lost");
    outbox.pending().note(&[&lost], &[], &report(vec![lost.clone()]));
    outbox.filled.notify_one();
    let redirecting = async {
        // Until the pause behind the first try has begun.
        loop {
            outbox.redirected.notify_waiters();
            tokio::task::yield_now().await;
        }
    };
    let pace = Pace { retry_min: Duration::from_secs(3600), ..QUICK };
    tokio::select! {
        () = delivered.notified() => {}
        () = redirecting => {}
        () = deliver(&outbox, "FILER", |notice| notice.json(), pace, post) => unreachable!("it delivers for ever"),
    }
}

#[tokio::test]
async fn a_mail_server_that_never_answers_holds_up_no_webhook() {
    use std::io::{Read, Write};
    let hook = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let webhook = Webhook { url: format!("http://{}", hook.local_addr().unwrap()), authorities: None };
    let task = std::thread::spawn(move || {
        let (mut stream, _) = hook.accept().unwrap();
        let (mut request, mut part) = (Vec::new(), [0; 4096]);
        while !request.ends_with(b"}") {
            let len = stream.read(&mut part).unwrap();
            assert!(len > 0, "the request ends");
            request.extend_from_slice(&part[..len]);
        }
        stream.write_all(b"HTTP/1.1 204 Taken\r\nContent-Length: 0\r\n\r\n").unwrap();
        String::from_utf8(request).unwrap()
    });
    let mail = Mail {
        host: "127.0.0.1".into(),
        port: silent.local_addr().unwrap().port(),
        protection: mail::Protection::None,
        from: "filer@example.com".into(),
        to: vec!["ann@example.com".into(), "ben@example.com".into()],
        login: None,
        authorities: None,
        delivered_within: Duration::from_millis(100),
    };
    let tested = test(Receivers { webhook: Some(webhook), mail: Some(mail) }, "FILER").await;
    assert!(task.join().unwrap().contains("\"test\":true"));
    let of = |at: usize| (tested[at].receiver.as_str(), tested[at].error.is_some());
    assert_eq!((of(0), of(1)), (("webhook", false), ("mail", true)));
    assert_eq!(tested[1].to, "ann@example.com, ben@example.com");
}
