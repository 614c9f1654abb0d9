import { useEffect, useState } from 'react'

/** The newest state that the server has told, and whether it is there. */
export function useLive(url, first) {
  const [state, setState] = useState(first)
  const [isThere, setIsThere] = useState(true)
  useEffect(() => {
    const events = new EventSource(url)
    events.onmessage = ({ data }) => {
      const latest = JSON.parse(data)
      setIsThere(true)
      setState((before) => (latest.error ? { ...before, error: latest.error } : latest))
    }
    events.onerror = () => setIsThere(false)
    return () => events.close()
  }, [url])
  return [state, isThere]
}

/** The time, every second; undefined on the server, which does not know the reader's time zone. */
export function useNow() {
  const [now, setNow] = useState()
  useEffect(() => {
    setNow(Date.now())
    const timer = setInterval(() => setNow(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  return now
}
