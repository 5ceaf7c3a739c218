-- Bounded: of a text that is too long to be sent, the beginning.

-- How many bytes the name of a queue has, and another value that stands in a list, at most.
local LONGEST_NAME, LONGEST_IN_LIST = 4096, 65536

-- A text of at most so many bytes. Of a longer one, the beginning, without half a character at its end, and its size.
local function bounded(text, most)
  if type(text) ~= 'string' or #text <= most then return text end
  local head = string.gsub(string.sub(text, 1, most), '[\192-\255]?[\128-\191]*$', '')
  return head .. '… (' .. #text .. ' bytes)'
end
