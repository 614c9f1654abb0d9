// Follows what a server tells its pages, and notices when it is gone: its connection ends, or it says nothing any more.

/** The server says something at least every 4.3 s (../live.mjs). If this is shorter, a busy server seems to be gone. */
const SILENCE = 6_000
const RETRY = 1_000

/** What a page shows where it has nothing that is true now. */
export const UNKNOWN = { connecting: 'connecting…', gone: 'not known', trouble: 'not known' }

export const GONE = 'This server does not answer. The page goes on when it is back.'

/**
 * Calls `tell` with each change: { link: 'live', state }, the state that is true now; { link: 'trouble', error }, if the server
 * can't tell it; { link: 'gone', error }, if the server does not answer. Then it connects again, until the server is back.
 * Returns a function that ends it.
 */
export function follow(url, tell) {
  let events
  let timer

  function connect() {
    events = new EventSource(url)
    events.onmessage = ({ data }) => {
      wait()
      const { error, ...state } = JSON.parse(data)
      tell(error ? { link: 'trouble', error } : { link: 'live', state })
    }
    events.onerror = lose
    wait()
  }

  function wait() {
    clearTimeout(timer)
    timer = setTimeout(lose, SILENCE)
  }

  function lose() {
    // A browser connects again by itself, but not after every error, and a connection to a frozen server looks healthy.
    events.close()
    clearTimeout(timer)
    tell({ link: 'gone', error: GONE })
    timer = setTimeout(connect, RETRY)
  }

  connect()
  return () => {
    events.close()
    clearTimeout(timer)
  }
}
