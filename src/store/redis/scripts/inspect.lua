-- Tells who holds locks, and who waits. KEYS: the locks, then their fence keys.
-- Answers one value for each: what the rule says; or the server's error.
if #KEYS == 0 then return {} end -- Only to see whether scripts may be run.
local count = #KEYS / 2
local time = redis.call('TIME')
local rules = (function(now_us) --[[rules]] end)(time[1] * 1000000 + time[2])
local answers = {}
for i = 1, count do
  local done, answer = pcall(rules.inspect, KEYS[i], KEYS[count + i])
  if not done and type(answer) ~= 'table' then answer = { err = answer } end
  answers[i] = answer
end
return answers
