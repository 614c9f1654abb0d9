-- Describes locks: their holders and their waiters.
--
-- KEYS  the locks, then their :fence keys, in the same order; none, to see whether the user may run
--       scripts
-- ARGV  none
--
-- Answers one value for each lock: what rules.inspect returns; or the server's error.
if #KEYS == 0 then return {} end
local count = #KEYS / 2
local time = redis.call('TIME')
local rules = (function(now_us)
  --[[include rules]]
  --[[include inspection]]
  return rules
end)(time[1] * 1000000 + time[2])
local answers = {}
for i = 1, count do
  local done, answer = pcall(rules.inspect, KEYS[i], KEYS[count + i])
  if not done and type(answer) ~= 'table' then answer = { err = answer } end
  answers[i] = answer
end
return answers
