-- Lets leases have the fences that a quorum gave them, and later ones only larger ones. KEYS: the locks, then their fence
-- keys; ARGV: how long the fence keys live at least (ms), a token for each lock, and for each the last of its fences
-- (16 digits) and how many there are before that.
-- Answers one value for each: 1 if the token holds the lock, 0 if nobody does, -1 if somebody else does; or the
-- server's error.
local call = redis.pcall
local count = #KEYS / 2
local life = tonumber(ARGV[1])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local rules
local answers = {}

-- MGET and not GET, because to it what is no string is nothing.
local known = call('MGET', unpack(KEYS))
if known.err then return known end
for i = 1, count do
  local lock, side, token = KEYS[i], KEYS[count + i], ARGV[1 + i]
  local top, back = ARGV[count + 2 * i], ARGV[count + 2 * i + 1]
  local text, answer = known[count + i], nil
  if known[i] == token and text then
    -- In the common case the fence key tells of this very lease, and of no larger fence; and the
    -- lease was not detached, so its name has no note.
    local mark, last, whose, name = string.match(text, '^(q?)(%d+)%-?%d* (%S+) (.*)$')
    if whose == token and last <= top and not string.find(name, '\31%d+$') then
      text = mark .. top .. (back ~= '0' and '-' .. back or '') .. ' ' .. token .. ' ' .. name
      -- One that is ahead of the clock lasts until the clock has caught up.
      local ahead = math.max(math.ceil((tonumber(top) - now_us) / 1000), 0)
      local lives = math.max(life + ahead, call('PTTL', side))
      local set = call('SET', side, text, 'PX', string.format('%.0f', lives))
      answer = set.err and set or 1
    end
  end
  if not answer then
    if not rules then rules = (function(now_us) --[[rules]] end)(now_us) end
    local done
    done, answer = pcall(rules.accept, lock, side, token, tonumber(top), tonumber(back), life)
    if not done and type(answer) ~= 'table' then answer = { err = answer } end
  end
  answers[i] = answer
end
return answers
