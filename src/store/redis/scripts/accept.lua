-- Gives leases the fences that a quorum decided on. Later leases get only larger fences.
--
-- KEYS     the locks, then their :fence keys, in the same order
-- ARGV[1]  the least life of the :fence keys in ms
-- then     a token for each lock
-- then     for each lock the last fence of its lease (16 digits), and how many there are before it
--
-- Answers one value for each lock: 1 if the token holds it, 0 if no token does, -1 if another token
-- does; or the server's error.
local try = redis.pcall
local count = #KEYS / 2
local life = tonumber(ARGV[1])
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local rules
local answers = {}
--[[include prelude]]
--[[include fence_text]]
--[[include name_notes]]

-- MGET and not GET: to MGET, a key that is no string is missing.
local known = try('MGET', unpack(KEYS))
if known.err then return known end
for i = 1, count do
  local lock, side, token = KEYS[i], KEYS[count + i], ARGV[1 + i]
  local top, back = ARGV[count + 2 * i], ARGV[count + 2 * i + 1]
  local text, answer = known[count + i], nil
  if known[i] == token and text then
    -- In the common case, the fence key is about this lease and has no larger fence, and the name
    -- has no note: the lease has had no other fence, and was not detached.
    local last, before, whose, name, mark = decode_fences(text)
    if whose == token and last <= top and split_note(name) == name then
      local own = last - (tonumber(before) or 0)
      if own < top - back then name = name .. FENCE_NOTE .. format('%.0f', own) end
      text = mark .. encode_fences(top, back, token, name)
      -- A fence that is ahead of the clock lasts until the clock has caught up.
      local ahead = math.max(math.ceil((tonumber(top) - now_us) / 1000), 0)
      local left = try('PTTL', side)
      local set = type(left) == 'table' and left
        or try('SET', side, text, 'PX', format('%.0f', math.max(life + ahead, left)))
      answer = set.err and set or 1
    end
  end
  if not answer then
    if not rules then
      rules = (function(now_us)
        --[[include rules]]
        --[[include acceptance]]
        return rules
      end)(now_us)
    end
    local done
    done, answer = pcall(rules.accept, lock, side, token, tonumber(top), tonumber(back), life)
    if not done and type(answer) ~= 'table' then answer = { err = answer } end
  end
  answers[i] = answer
end
return answers
