//! Load without end on one file: random sizes and places, every byte that comes back compared, connections killed and made anew
//! every few seconds. Ends with status 1 at the first wrong byte, error or stall.
//!
//! `soak HOST SHARE FILE --user NAME --seconds N [--tcp-port PORT] [--rdma-port PORT] [--channels N] [--tcp-channels N]`
//! `     [--sign] [--encrypt] [--no-crc] [--seed N] [--kill-every-ms N] [--json]`
//!
//! The password is in the environment variable CENOTE_SMB_PASSWORD. If an `--rdma-port` is given, channels go by SMB Direct;
//! `--tcp-channels` are added by TCP. Every tenth kill takes all connections at once: the session is then set up anew, and the durable
//! file is found again.

use smb_client::{
    Client, Credentials, Encryption, File, NtHash, OpenOptions, Options, Reply, Signing, Token, Transport,
};
use std::collections::HashMap;
use std::error::Error;
use std::time::{Duration, Instant};
use sys::{BufMut, Payload};

/// Time without progress that counts as a stall: longer than a new session takes on a busy machine,
/// shorter than patience.
const STALL: Duration = Duration::from_secs(40);
const FILE_BYTES: usize = 24 << 20;
/// Unit in which ranges in use are marked.
const GRAIN_BYTES: usize = 64 << 10;
const GRAINS: usize = FILE_BYTES / GRAIN_BYTES;
const DEPTH: usize = 24;
const KILLS_PER_RECONNECT: u64 = 10;

/// xorshift64*: the same seed asks for the same.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 16) as usize % bound.max(1)
    }

    fn fill(&mut self, bytes: &mut [u8]) {
        for word in bytes.chunks_mut(8) {
            let value = self.next().to_le_bytes();
            word.copy_from_slice(&value[..word.len()]);
        }
    }

    /// Mostly small, now and then as large as an operation may be.
    fn length(&mut self, most: usize) -> usize {
        let scale = [512, 4096, 4097, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
        let largest = scale[self.below(scale.len())].min(most);
        1 + self.below(largest)
    }
}

struct Asked {
    offset: usize,
    /// Data of a write; a read has none.
    data: Option<Vec<u8>>,
    len: usize,
}

struct Arguments {
    host: String,
    share: String,
    file: String,
    user: String,
    seconds: u64,
    tcp_port: u16,
    tcp_channels: usize,
    seed: u64,
    kill_every_ms: u64,
    port: u16,
    options: Options,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let mut next = |what: &str| words.next().ok_or_else(|| format!("{what} is missing"));
    let (host, share, file) = (next("HOST")?, next("SHARE")?, next("FILE")?);
    let options = Options {
        signing: Signing::IfRequired,
        reconnect: Duration::from_secs(30),
        timeout: Duration::from_secs(30),
        channels: 3,
        ..Options::default()
    };
    let (user, seconds, seed) = ("user".to_owned(), 60, 1);
    let (tcp_port, port, tcp_channels, kill_every_ms) = (445, 445, 0, 3000);
    let mut all = Arguments {
        host,
        share,
        file,
        user,
        seconds,
        tcp_port,
        tcp_channels,
        seed,
        kill_every_ms,
        port,
        options,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} takes a value"));
        match word.as_str() {
            "--user" => all.user = value()?,
            "--seconds" => all.seconds = value()?.parse()?,
            "--tcp-port" => all.tcp_port = value()?.parse()?,
            "--rdma-port" => {
                all.port = value()?.parse()?;
                all.options.transport = Transport::Rdma;
            }
            "--channels" => all.options.channels = value()?.parse()?,
            "--tcp-channels" => all.tcp_channels = value()?.parse()?,
            "--sign" => all.options.signing = Signing::Required,
            "--encrypt" => all.options.encryption = Encryption::Required,
            "--no-crc" => all.options.rdma_crc = false,
            "--seed" => all.seed = value()?.parse::<u64>()?.max(1),
            "--kill-every-ms" => all.kill_every_ms = value()?.parse::<u64>()?.max(1),
            other => return Err(format!("unknown option: {other}").into()),
        }
    }
    if all.options.transport == Transport::Tcp {
        all.port = all.tcp_port;
    }
    if all.seed % 2 == 1 {
        // The server fetches what others send, and writes what others have in answers.
        (all.options.rdma_write_bytes_min, all.options.rdma_read_bytes_min) = (4097, 4097);
    }
    Ok(all)
}

struct Soak {
    client: Client,
    file: File,
    /// Expected contents of the file, as far as the server has answered.
    model: Vec<u8>,
    /// Grains that an operation is in.
    busy: Vec<bool>,
    asked: HashMap<Token, Asked>,
    random: Random,
    operations: u64,
    bytes: u64,
}

impl Soak {
    fn grains(offset: usize, len: usize) -> std::ops::RangeInclusive<usize> {
        offset / GRAIN_BYTES..=(offset + len - 1) / GRAIN_BYTES
    }

    /// Asks for one operation if none is under way.
    fn ask(&mut self) -> Result<(), Box<dyn Error>> {
        let limits = self.client.limits();
        let len = self.random.length(limits.read_bytes.min(limits.write_bytes) as usize);
        let offset = self.random.below(FILE_BYTES - len);
        if self.busy[Self::grains(offset, len)].iter().any(|busy| *busy) {
            return Ok(());
        }
        self.busy[Self::grains(offset, len)].fill(true);
        let (token, data) = if self.random.below(2) == 0 {
            let mut data = vec![0; len];
            self.random.fill(&mut data);
            let mut block = BufMut::for_overwrite(len);
            block.copy_from_slice(&data);
            let token = self.client.submit_write(&self.file, offset as u64, Payload::from(block.freeze()))?;
            (token, Some(data))
        } else {
            (self.client.submit_read(&self.file, offset as u64, len as u32)?, None)
        };
        self.asked.insert(token, Asked { offset, data, len });
        Ok(())
    }

    fn check(&mut self, token: Token, reply: &Reply) -> Result<(), Box<dyn Error>> {
        let Some(asked) = self.asked.remove(&token) else { return Ok(()) };
        let Asked { offset, data, len } = asked;
        self.busy[Self::grains(offset, len)].fill(false);
        match data {
            Some(data) => {
                let written =
                    reply.written_bytes().map_err(|error| format!("WRITE at {offset}, {len}: {error}"))?;
                if written as usize != len {
                    return Err(format!("{written} bytes written of {len} at {offset}").into());
                }
                self.model[offset..offset + len].copy_from_slice(&data);
            }
            None => {
                let data = reply.read_data().map_err(|error| format!("READ at {offset}, {len}: {error}"))?;
                if data[..] != self.model[offset..offset + len] {
                    let wrong = data.iter().zip(&self.model[offset..]).position(|(a, b)| a != b);
                    return Err(
                        format!("wrong data at {offset} + {wrong:?} of {len} ({} came)", data.len()).into()
                    );
                }
            }
        }
        self.operations += 1;
        self.bytes += len as u64;
        Ok(())
    }

    fn run(&mut self, arguments: &Arguments) -> Result<u64, Box<dyn Error>> {
        let began = Instant::now();
        let end = began + Duration::from_secs(arguments.seconds);
        let mut kills = 0;
        let mut kill_at = began + Duration::from_millis(arguments.kill_every_ms);
        let mut moved_at = Instant::now();
        let mut answers = Vec::new();
        loop {
            let now = Instant::now();
            if now >= end && self.asked.is_empty() {
                return Ok(kills);
            }
            if now >= kill_at && now < end {
                kills += 1;
                if kills % KILLS_PER_RECONNECT == 0 {
                    (0..self.client.channel_count()).for_each(|channel| self.client.kill_channel(channel));
                } else if self.client.channel_count() > 1 {
                    let victim = self.random.below(self.client.channel_count());
                    self.client.kill_channel(victim);
                }
                let wait =
                    arguments.kill_every_ms / 2 + self.random.below(arguments.kill_every_ms as usize) as u64;
                kill_at = Instant::now() + Duration::from_millis(wait);
            }
            // As many as there may be, or as are found in some attempts.
            for _ in 0..2 * DEPTH {
                if self.asked.len() >= DEPTH || now >= end {
                    break;
                }
                self.ask()?;
            }
            self.client.poll(&mut answers)?;
            if answers.is_empty() {
                if moved_at.elapsed() > STALL {
                    return Err(
                        format!("nothing in {STALL:?} with {} requests asked", self.asked.len()).into()
                    );
                }
                self.client.engine().clone().wait(Duration::from_millis(100))?;
                continue;
            }
            moved_at = Instant::now();
            for (token, reply) in answers.drain(..) {
                self.check(token, &reply)?;
            }
        }
    }
}

fn connect(arguments: &Arguments) -> Result<Client, Box<dyn Error>> {
    let password = std::env::var("CENOTE_SMB_PASSWORD").unwrap_or_default();
    let credentials = Credentials::User {
        user: arguments.user.clone(),
        domain: String::new(),
        workstation: String::new(),
        hash: NtHash::from_password(&password),
        target_name: format!("cifs/{}", arguments.host),
    };
    let options = arguments.options.clone();
    let mut client = Client::connect(&arguments.host, arguments.port, credentials, options)?;
    for _ in 0..arguments.tcp_channels {
        client.add_channel(Transport::Tcp, arguments.tcp_port)?;
    }
    Ok(client)
}

fn soak() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let mut client = connect(&arguments)?;
    let tree = client.tree_connect(&arguments.share)?;
    let file = client.open(tree, &arguments.file, OpenOptions::overwrite().durable())?;
    if !file.is_durable {
        return Err("the server does not keep the file open for a lost session".into());
    }
    client.set_size(&file, FILE_BYTES as u64)?;
    let mut soak = Soak {
        client,
        file,
        model: vec![0; FILE_BYTES],
        busy: vec![false; GRAINS],
        asked: HashMap::new(),
        random: Random(arguments.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
        operations: 0,
        bytes: 0,
    };
    let kills = soak.run(&arguments).map_err(|error| {
        format!(
            "{}, after {} operations: {error}; {:?}; the last connection was lost because: {}",
            arguments.file,
            soak.operations,
            soak.client.counters(),
            soak.client.last_loss().unwrap_or("none was")
        )
    })?;
    let counters = soak.client.counters();
    soak.client.close(soak.file)?;
    drop(soak.client);

    // Everything once more, in a session that has nothing to do with the one before.
    let mut client = connect(&arguments)?;
    let tree = client.tree_connect(&arguments.share)?;
    let file = client.open(tree, &arguments.file, OpenOptions::read())?;
    if client.read_at(&file, 0, FILE_BYTES)? != soak.model {
        return Err("the file is not what was written, read in another session".into());
    }
    println!(
        "{}: {} operations, {} bytes ({} by RDMA); {kills} kills, {} connections lost, {} requests repeated, \
         {} sessions set up anew; all data right",
        arguments.file,
        soak.operations,
        soak.bytes,
        counters.rdma_read_bytes + counters.rdma_written_bytes,
        counters.channels_lost,
        counters.requests_repeated,
        counters.reconnects,
    );
    Ok(())
}

fn main() {
    if let Err(error) = soak() {
        eprintln!("soak: {error}");
        std::process::exit(1);
    }
}
