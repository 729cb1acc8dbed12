package pinfold

import (
	"context"

	pb "github.com/pinfold/pinfold/clients/go/gen/pinfold/v1"
)

type sendSettings struct {
	requestID string
	passive   bool
}

// SendOption is a setting of SendPrompt and Message.
type SendOption func(*sendSettings)

// WithRequestID names the request; one is generated. The same id again changes nothing.
func WithRequestID(id string) SendOption {
	return func(s *sendSettings) { s.requestID = id }
}

// Passive makes a prompt ride along with the next activating one. For SendPrompt.
func Passive() SendOption {
	return func(s *sendSettings) { s.passive = true }
}

func sending(options []SendOption) sendSettings {
	var chosen sendSettings
	for _, option := range options {
		option(&chosen)
	}
	chosen.requestID = orNewID(chosen.requestID, "req")
	return chosen
}

// SendPrompt stores a user's prompt for the agent and returns its id.
func (a *Agent) SendPrompt(ctx context.Context, text string, options ...SendOption) (string, error) {
	chosen := sending(options)
	response, err := unary(ctx, a.client, quick, a.client.agents.SendPrompt, &pb.SendPromptRequest{
		AgentId:   a.ID,
		RequestId: chosen.requestID,
		Text:      text,
		Passive:   chosen.passive,
	})
	return response.GetPromptId(), err
}

// Message sends a message to another agent. Success means stored.
func (a *Agent) Message(
	ctx context.Context, recipientID, message string, options ...SendOption,
) (*pb.SendMessageResponse, error) {
	return unary(ctx, a.client, quick, a.client.agents.SendMessage, &pb.SendMessageRequest{
		AgentId:     a.ID,
		RequestId:   sending(options).requestID,
		RecipientId: recipientID,
		Message:     message,
	})
}

// WatchAgent turns the watch of another agent on or off. It returns what a model reads.
func (a *Agent) WatchAgent(ctx context.Context, agentID string, enable bool) (string, error) {
	response, err := unary(ctx, a.client, quick, a.client.agents.WatchAgent,
		&pb.WatchAgentRequest{AgentId: a.ID, WatchedAgentId: agentID, Enable: enable})
	return response.GetText(), err
}

// Status reports what the agent does, with a title of one line. It returns what a model reads.
func (a *Agent) Status(ctx context.Context, state pb.ReportedState, title string) (string, error) {
	response, err := unary(ctx, a.client, quick, a.client.agents.ReportStatus,
		&pb.ReportStatusRequest{AgentId: a.ID, Status: &pb.StatusReport{State: state, Title: title}})
	return response.GetText(), err
}
