-- Makes leases those of heirs. KEYS: the locks, then their fence keys; ARGV: the ttl and the fence keys' life in ms, the
-- new holder's name, a token for each lock, and an heir for each. A ttl of 0 only moves the lease: its end and its name
-- stay, and behind the heirs comes for each lock another token that may own it already.
-- Answers one value for each: 1 if the lease is the heir's, 0 if nobody holds the lock, -1 if somebody else does, if it
-- is only to be moved the mark of who claims it; or the server's error.
local count = #KEYS / 2
local time = redis.call('TIME')
local rules = (function(now_us) --[[rules]] end)(time[1] * 1000000 + time[2])
local ttl, life, name = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local answers = {}
for i = 1, count do
  local token, heir = ARGV[3 + i], ARGV[3 + count + i]
  local other = ARGV[3 + 2 * count + i]
  local done, answer = pcall(rules.adopt, KEYS[i], KEYS[count + i], token, heir, ttl, life, name, other)
  if not done and type(answer) ~= 'table' then answer = { err = answer } end
  answers[i] = answer
end
return answers
