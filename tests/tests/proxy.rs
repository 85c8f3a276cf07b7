//! The kit's own link: what tests of bad networks rest on.

use anyhow::{Context as _, Result};
use specdec_tests::proxy::{Link, Proxy};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Sends back what it gets, to any number of clients, until the test ends.
fn echo() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    Ok(url)
}

fn serve(mut stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    let mut buffer = [0; 4096];
    while let Ok(len @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
}

fn connect(proxy: &Proxy) -> Result<TcpStream> {
    let stream = TcpStream::connect(proxy.url().trim_start_matches("http://"))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    Ok(stream)
}

fn round_trip(stream: &mut TcpStream) -> Result<Duration> {
    let begun = Instant::now();
    stream.write_all(b"x")?;
    stream.read_exact(&mut [0])?;
    Ok(begun.elapsed())
}

fn round_trips(stream: &mut TcpStream, count: usize) -> Result<Vec<Duration>> {
    let mut times = (0..count)
        .map(|_| round_trip(stream))
        .collect::<Result<Vec<_>>>()?;
    times.sort_unstable();
    Ok(times)
}

#[test]
fn a_round_trip_takes_what_is_stated_also_below_a_millisecond() -> Result<()> {
    let proxy = Proxy::start(&echo()?, Link::default())?;
    let mut stream = connect(&proxy)?;
    for rtt in [500, 1000, 5000].map(Duration::from_micros) {
        proxy.set(Link::with_rtt(rtt));
        let times = round_trips(&mut stream, 100)?;
        let (least, median) = (times[0], times[times.len() / 2]);
        assert!(least >= rtt, "{least:?} where {rtt:?} is stated");
        // Other programs share the machine, so the bound is wide: a timer's tick more.
        let most = rtt + Duration::from_millis(1);
        assert!(median < most, "median {median:?} where {rtt:?} is stated");
    }
    Ok(())
}

#[test]
fn jitter_is_drawn_anew_and_keeps_the_order() -> Result<()> {
    let link = Link {
        delay: Duration::from_micros(100),
        jitter: Duration::from_millis(3),
        seed: 5,
        ..Link::default()
    };
    let proxy = Proxy::start(&echo()?, link)?;
    let mut stream = connect(&proxy)?;
    let times = round_trips(&mut stream, 100)?;
    let spread = times[90].saturating_sub(times[10]);
    assert!(spread > Duration::from_millis(1), "spread {spread:?}");

    let mut writing = stream.try_clone()?;
    let sent: Vec<u8> = (0..200_u8).collect();
    let pieces = sent.clone();
    let writer = thread::spawn(move || {
        pieces.into_iter().try_for_each(|byte| {
            thread::yield_now();
            writing.write_all(&[byte])
        })
    });
    let mut received = vec![0; sent.len()];
    stream.read_exact(&mut received)?;
    writer.join().ok().context("the writer panicked")??;
    assert_eq!(received, sent);
    Ok(())
}

#[test]
fn no_more_passes_than_the_bandwidth() -> Result<()> {
    let link = Link {
        bytes_per_second: Some(1_000_000),
        ..Link::default()
    };
    let proxy = Proxy::start(&echo()?, link)?;
    let mut stream = connect(&proxy)?;
    let mut writing = stream.try_clone()?;
    let begun = Instant::now();
    let writer = thread::spawn(move || writing.write_all(&[7; 200_000]));
    stream.read_exact(&mut vec![0; 200_000])?;
    let took = begun.elapsed();
    writer.join().ok().context("the writer panicked")??;
    assert!(took >= Duration::from_millis(200), "{took:?}");
    Ok(())
}

#[test]
fn a_cut_ends_connections_and_new_ones_until_it_is_restored() -> Result<()> {
    let proxy = Proxy::start(&echo()?, Link::default())?;
    let mut stream = connect(&proxy)?;
    round_trip(&mut stream)?;
    proxy.cut();
    assert!(round_trip(&mut stream).is_err(), "the old one");
    let refused = connect(&proxy).and_then(|mut stream| round_trip(&mut stream));
    assert!(refused.is_err(), "a new one");
    proxy.restore();
    round_trip(&mut connect(&proxy)?)?;
    Ok(())
}

#[test]
fn what_is_sent_during_a_stall_arrives_after_it() -> Result<()> {
    let proxy = Proxy::start(&echo()?, Link::default())?;
    let mut stream = connect(&proxy)?;
    round_trip(&mut stream)?;
    proxy.stall();
    stream.write_all(b"y")?;
    stream.set_read_timeout(Some(Duration::from_millis(100)))?;
    assert!(stream.read_exact(&mut [0]).is_err(), "nothing passes");
    proxy.restore();
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut byte = [0];
    stream.read_exact(&mut byte)?;
    assert_eq!(&byte, b"y");
    Ok(())
}

#[test]
fn a_dropped_proxy_ends_its_connections() -> Result<()> {
    let proxy = Proxy::start(&echo()?, Link::with_rtt(Duration::from_millis(2)))?;
    let mut stream = connect(&proxy)?;
    round_trip(&mut stream)?;
    drop(proxy);
    assert!(round_trip(&mut stream).is_err());
    Ok(())
}
