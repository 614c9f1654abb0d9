import { useEffect, useState } from 'react'
import { follow } from '../../shared/public/follow.mjs'

/**
 * Returns the newest `state`, the time when the server sent it (`heard`), and `link`: 'live' if the
 * state is current, 'trouble' or 'gone' if it is out of date. Then `error` says why. The first
 * state comes with the page.
 */
export function useLive(url, first) {
  const [live, setLive] = useState({ link: 'live', state: first })
  useEffect(() => {
    setLive((page) => ({ ...page, heard: Date.now() }))
    return follow(url, (latest) =>
      setLive(({ state, heard }) =>
        latest.link === 'live' ? { ...latest, heard: Date.now() } : { ...latest, state, heard },
      ),
    )
  }, [url])
  return live
}

/**
 * Returns the time, every second; undefined on the server, which does not know the reader's time
 * zone.
 */
export function useNow() {
  const [now, setNow] = useState()
  useEffect(() => {
    setNow(Date.now())
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  return now
}
