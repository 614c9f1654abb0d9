//! The runtime of the engine's thread.

use std::io;

use tokio::runtime::{LocalOptions, LocalRuntime};

/// The number of tasks after which the runtime looks at its sockets and timers, while tasks are
/// ready. If this is larger, a server that sends without end delays the renewals at other stores,
/// although the connections of its store pause after 2 ms of reading. If it is smaller, the runtime
/// asks the system more often: at 3, an acquire and a release over three nodes make 16 such calls
/// in place of 6.
const EVENT_INTERVAL: u32 = 16;

/// Returns a runtime that stays on this thread.
pub fn local_runtime() -> io::Result<LocalRuntime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .event_interval(EVENT_INTERVAL)
        .build_local(LocalOptions::default())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::rc::Rc;
    use std::task::Poll;
    use std::thread;
    use std::time::Duration;

    use futures_util::future::poll_fn;
    use tokio::io::AsyncReadExt;
    use tokio::task::spawn_local;

    use super::*;

    /// How often the test waits for a timer or a socket.
    const ROUNDS: usize = 20;
    /// How long a timer runs. A task keeps the thread for three times as long.
    const MS: Duration = Duration::from_millis(1);

    /// Says what a task waits for.
    #[derive(Clone, Copy)]
    enum Awaited {
        Timer,
        Socket,
    }

    /// Lets a task be ready all the time, and another one wait for the timer or the socket. Returns
    /// how often the first one ran after the timer or the socket was ready, until the other one
    /// ran: the most of all rounds.
    fn most_runs_until(awaited: Awaited) -> u32 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nodelay(true).unwrap();
        let (far, _) = listener.accept().unwrap();
        far.set_nonblocking(true).unwrap();
        let waits = Rc::new(Cell::new(false));
        let runs = Rc::new(Cell::new(0));
        let busy = {
            let (waits, runs) = (waits.clone(), runs.clone());
            poll_fn(move |cx| {
                if waits.take() {
                    match awaited {
                        Awaited::Timer => thread::sleep(3 * MS),
                        Awaited::Socket => near.write_all(b"x").unwrap(),
                    }
                    runs.set(0);
                }
                runs.set(runs.get() + 1);
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            })
        };
        local_runtime().unwrap().block_on(async move {
            let busy = spawn_local(busy);
            let most = spawn_local(async move {
                let mut far = tokio::net::TcpStream::from_std(far).unwrap();
                let mut most = 0;
                for _ in 0..ROUNDS {
                    waits.set(true);
                    match awaited {
                        Awaited::Timer => tokio::time::sleep(MS).await,
                        Awaited::Socket => drop(far.read_u8().await.unwrap()),
                    }
                    most = most.max(runs.get());
                }
                most
            });
            let most = most.await.unwrap();
            busy.abort();
            most
        })
    }

    #[test]
    fn timers_and_sockets_are_looked_at_often_but_not_all_the_time_while_tasks_are_ready() {
        for (awaited, name) in [(Awaited::Timer, "timer"), (Awaited::Socket, "socket")] {
            let most = most_runs_until(awaited);
            // At more than 30, a server that sends without end delays other stores. At less than
            // 8, each request costs several system calls more.
            assert!((8..=30).contains(&most), "a task ran {most} times before the {name} was looked at");
        }
    }
}
