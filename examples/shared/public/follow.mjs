// Follows the states that a server sends to its pages, and notices when the server is gone.

/**
 * How long the server may be silent, in ms. The server sends something at least every 4.3 s
 * (../live.mjs). If this is shorter, a busy server seems to be gone; if it is longer, the page
 * shows an old state for longer.
 */
const SILENCE = 6_000
/**
 * After how long the page connects again, in ms. If this is longer, the page is current later; if
 * it is shorter, the page tries more often.
 */
const RETRY = 1_000

/** The text that a page shows instead of a state that is out of date. */
export const UNKNOWN = { connecting: 'connecting…', gone: 'not known', trouble: 'not known' }

export const GONE = 'This server does not answer. The page goes on when it is back.'

/**
 * Calls `tell` with each change:
 *
 * - { link: 'live', state }: the state that is current.
 * - { link: 'trouble', error }: the server does not know the state.
 * - { link: 'gone', error }: the server does not answer. Connects again every second until the
 *   server is back.
 *
 * Returns a function that stops following.
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
    // The browser does not connect again after every error, and never to a server that hangs.
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
