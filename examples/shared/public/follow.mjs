// Follows the states that a server sends to its pages, and notices when the server is gone.

/**
 * How long the server may be silent, in ms. It sends something at least every 4.3 s (../live.mjs): if
 * this is shorter, a busy server seems to be gone.
 */
const SILENCE = 6_000
/** When the page connects again, in ms. */
const RETRY = 1_000

/** What a page shows instead of a state that is not true now. */
export const UNKNOWN = { connecting: 'connecting…', gone: 'not known', trouble: 'not known' }

export const GONE = 'This server does not answer. The page goes on when it is back.'

/**
 * Calls `tell` with each change: { link: 'live', state } with the state that is true now;
 * { link: 'trouble', error } if the server does not know it; { link: 'gone', error } if the server
 * does not answer. Then it connects again every second until the server is back. Returns a function
 * that stops it.
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
    // The browser does not connect again after every error, and never to a server that stands still.
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
